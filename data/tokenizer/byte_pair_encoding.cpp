#include "data/tokenizer/byte_pair_encoding.h"

#include <algorithm>
#include <queue>
#include <stdexcept>

namespace attnres {
namespace {

std::uint64_t key(std::int32_t left, std::int32_t right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

// The code point of a byte's symbol: itself where that prints, else 256, 257, ... in order.
const std::vector<std::uint32_t>& code_points() {
  static const std::vector<std::uint32_t> table = [] {
    std::vector<std::uint32_t> points(256, 0);
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                          (byte >= 0xae && byte <= 0xff);
      points[byte] = prints ? byte : next++;
    }
    return points;
  }();
  return table;
}

}  // namespace

std::string byte_symbol(unsigned char byte) {
  const std::uint32_t point = code_points()[byte];  // below 0x800: one or two bytes of UTF-8
  if (point < 0x80) return std::string(1, char(point));
  return {char(0xc0 | point >> 6), char(0x80 | (point & 0x3f))};
}

std::string bytes_of_symbols(std::string_view token) {
  static const std::unordered_map<std::string, char> bytes = [] {
    std::unordered_map<std::string, char> map;
    for (int byte = 0; byte < 256; ++byte)
      map.emplace(byte_symbol(static_cast<unsigned char>(byte)), char(byte));
    return map;
  }();
  std::string result;
  for (std::size_t i = 0; i < token.size();) {
    const std::size_t length = static_cast<unsigned char>(token[i]) < 0x80 ? 1 : 2;
    const auto found = bytes.find(std::string(token.substr(i, length)));
    if (found == bytes.end())
      throw std::invalid_argument("token \"" + std::string(token) +
                                  "\" has a character that stands for no byte");
    result.push_back(found->second);
    i += length;
  }
  return result;
}

const std::vector<unsigned char>& bytes_in_gpt2_order() {
  static const std::vector<unsigned char> order = [] {
    std::vector<unsigned char> bytes(256);
    for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<unsigned char>(byte);
    std::stable_sort(bytes.begin(), bytes.end(), [](unsigned char a, unsigned char b) {
      return code_points()[a] < code_points()[b];
    });
    return bytes;
  }();
  return order;
}

BytePairEncoding::BytePairEncoding(std::vector<std::string> tokens,
                                   const std::vector<std::pair<std::string, std::string>>& merges)
    : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id)
    if (!tokens_[id].empty()) ids_.emplace(tokens_[id], std::int32_t(id));
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = find(std::string(1, char(byte)));
    if (byte_ids_[byte] < 0 && byte >= ' ' && byte <= '~')
      throw std::invalid_argument("the vocabulary has no token for byte " + std::to_string(byte) +
                                  "; it is not of the byte-level kind");
  }
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::int32_t l = find(left), r = find(right), whole = find(left + right);
    if (l < 0 || r < 0 || whole < 0)
      throw std::invalid_argument("merge " + std::to_string(rank) +
                                  " joins or makes something that is no token");
    merges_.emplace(key(l, r), Merge{std::int32_t(rank), whole});
  }
}

std::int32_t BytePairEncoding::find(std::string_view bytes) const {
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

std::string_view BytePairEncoding::bytes(std::int32_t id) const {
  return id >= 0 && id < size() ? std::string_view(tokens_[id]) : std::string_view();
}

const BytePairEncoding::Merge* BytePairEncoding::merge_of(std::int32_t left,
                                                          std::int32_t right) const {
  const auto found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// Tokens form a list; a heap holds the possible merges by (rank, position).  An entry is stale once
// either of its tokens has changed, and is then passed over.
void BytePairEncoding::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  struct Node {
    std::int32_t id, previous, next;
  };
  struct Candidate {
    std::int32_t rank, position, left, right, merged;
    bool operator<(const Candidate& other) const {  // the heap's top is the largest
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  thread_local std::vector<Node> nodes;
  thread_local std::vector<Candidate> heap;
  nodes.clear();
  heap.clear();
  for (const char c : piece) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)],
                       i = std::int32_t(nodes.size());
    if (id >= 0) nodes.push_back({id, i - 1, i + 1});
  }
  if (nodes.empty()) return;
  nodes.back().next = -1;
  const auto n = std::int32_t(nodes.size());
  const auto consider = [&](std::int32_t position) {
    const std::int32_t next = nodes[position].next;
    if (next < 0) return;
    const Merge* merge = merge_of(nodes[position].id, nodes[next].id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, position, nodes[position].id, nodes[next].id, merge->id});
    std::push_heap(heap.begin(), heap.end());
  };
  for (std::int32_t i = 0; i + 1 < n; ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Node& left = nodes[best.position];
    if (left.id != best.left || left.next < 0 || nodes[left.next].id != best.right) continue;
    Node& right = nodes[left.next];
    left.id = best.merged;
    right.id = -1;  // no token: makes what points here stale
    left.next = right.next;
    if (left.next >= 0) nodes[left.next].previous = best.position;
    consider(best.position);
    if (left.previous >= 0) consider(left.previous);
  }
  for (std::int32_t i = 0; i >= 0; i = nodes[i].next) ids.push_back(nodes[i].id);
}

}  // namespace attnres
