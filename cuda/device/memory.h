// Device memory that is owned, and errors that say which call failed.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device/backend.h"

namespace attnres::ATTNRES_BACKEND {

struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws DeviceError "FILE:LINE: call: reason" unless the call succeeded.
inline void check_device(cudaError_t error, const char* call, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  if (error == cudaSuccess) return;
  throw DeviceError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                    cudaGetErrorString(error));
}

/// `size` values on the device; moves, never copies.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) : size_(size) {
    if (size > 0) check_device(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    upload(values);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    swap(other);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  void upload(std::span<const T> values) {
    if (size_ == 0) return;
    check_device(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
                 "cudaMemcpy to the device");
  }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    if (size_ == 0) return values;
    check_device(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost),
                 "cudaMemcpy from the device");
    return values;
  }
  void zero(cudaStream_t stream = nullptr) {
    if (size_ == 0) return;
    check_device(cudaMemsetAsync(data_, 0, bytes(), stream), "cudaMemsetAsync");
  }

 private:
  void swap(DeviceArray& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace attnres::ATTNRES_BACKEND
