// The kernels of depth attention as host functions: what each reads and writes, in math.md's names.
// T is float or __nv_bfloat16: the type of rows in memory; sums and statistics are float.
// Source rows lie in one bank [S, N, D], gradients G_l in another [L+2, N, D] (row 0 unused).
#pragma once

#include <cstdint>

#include "cuda/depth/row_layout.h"
#include "cuda/device/launch.h"

namespace attnres::ATTNRES_BACKEND {

using std::int64_t;

/// The pre-norm that follows a site: normed = rstd * o ∘ gain.  Fused: o is normed in registers.
template <class T>
struct PreNorm {
  const float* gain = nullptr;  ///< [D]; nullptr: no pre-norm
  T* normed = nullptr;          ///< [N, D]
  float* rstd = nullptr;        ///< [N], of o
};

/// A softmax mix over part of a site's sources (math.md section 3): running maximum m, sum of
/// exponentials z, unnormalised mix u.
struct PartialMix {
  float* maximum = nullptr;  ///< m [N, H]
  float* sum = nullptr;      ///< z [N, H]
  float* mix = nullptr;      ///< u [N, D]
};

/// One site's forward pass.  Of its sources, oldest first, those from `first` on are read; the ones
/// before are already in `partial`, with their logits in `weights`.
template <class T>
struct SiteForward {
  const T* bank;   ///< v [S, N, D]
  float* rstd;     ///< r [S, N]; that of source `fresh` is computed here and kept
  int64_t tokens;  ///< N
  float eps;
  const int* sources;   ///< indices of the site's sources, on the device
  int count, first;     ///< number of sources; the first one that is read
  int fresh;            ///< the source that no site has read yet, -1 if there is none
  const float* folded;  ///< w = q ∘ g [D]
  PartialMix partial;   ///< read where first > 0
  float* weights;       ///< a [count, N, H]
  T* output;            ///< o [N, D]
  PreNorm<T> norm;
};

/// Fused: one pass over the sources with an online softmax; everything else stays in registers.
template <class T>
void fused_forward(const RowLayout& row, const SiteForward<T>& site, cudaStream_t stream);

/// Naive: one thread block per token, the equations as they are written.
template <class T>
void naive_forward(const SiteForward<T>& site, int channels, int heads, cudaStream_t stream);

/// Up to kMaxGroup consecutive sites against the sources finished before them, each source row read
/// once.  The first site, all of whose sources these are, is finished; the others are left partial.
template <class T>
struct GroupForward {
  const T* bank;
  float* rstd;
  int64_t tokens;
  float eps;
  const int* sources;    ///< the group's old sources, ascending
  const int* positions;  ///< [count, kMaxGroup]: where a site has it among its own, -1: it does not
  int count, sites;
  int fresh;
  const float* folded[kMaxGroup];
  float* weights[kMaxGroup];       ///< a of the first site; logits s of the others
  PartialMix partials[kMaxGroup];  ///< [0] unused
  T* output;                       ///< o of the first site
  PreNorm<T> norm;                 ///< of the first site
};
template <class T>
void grouped_forward(const RowLayout& row, const GroupForward<T>& group, cudaStream_t stream);

/// G = dLoss/do and delta[n,h] = sum_{c in h} G o from what the sublayer's backward pass gives:
/// dLoss/do itself, or, with a pre-norm, dLoss/dnormed:
///   g = dnormed ∘ gain;  G = rstd g - rstd^3 / D <g, o> o;  dgain = sum_n rstd dnormed ∘ o.
template <class T>
struct KeepGradient {
  int64_t tokens;
  const T* incoming;      ///< [N, D]
  const T* output;        ///< o [N, D]
  PreNorm<T> norm;        ///< gain and rstd are read
  T* gradient;            ///< G [N, D]; may be `incoming` where there is no pre-norm
  float* delta;           ///< [N, H]
  float* dgain_partials;  ///< [keep_gradient_rows, D], with a pre-norm
};
template <class T>
void keep_gradient(const RowLayout& row, const KeepGradient<T>& keep, cudaStream_t stream);
int keep_gradient_rows(const RowLayout& row, int64_t tokens);

/// A site that reads a source, R^-1(i) of the gather form, and where their pair's weights lie.
struct Consumer {
  int site;
  int64_t pair;  ///< index into weights and errors [pairs, N, H]
};

/// What the consumers of a source after its group have contributed (grouped backward).
struct PartialGather {
  float* dsource = nullptr;  ///< sum_l a G + r e ∘ w  [N, D]
  float* routed = nullptr;   ///< sum_l sum_h a p  [N]
};

/// The gather form (math.md section 1), seen from one source:
///   p = <G_l, v> per head;  e = a (p - delta_l);  x = sum_l a ∘ G_l + r e ∘ w_l
///   dv = x - (r^2 / D) (<x, v> - sum_l sum_h a p) v
/// The bracket is sum_l sum_h e s, since <x, v> = sum a p + sum e s: no second dot product.
template <class T>
struct Gather {
  int64_t tokens;
  const T* source;       ///< v_i [N, D]
  const float* rstd;     ///< r_i [N]
  const T* gradients;    ///< G [L+2, N, D]
  const float* delta;    ///< [L+2, N, H]
  const float* folded;   ///< w [L+2, D]
  const float* weights;  ///< a [pairs, N, H]
  float* errors;         ///< e [pairs, N, H], written
  const Consumer* consumers;
  int count;
  PartialGather partial;  ///< added where its dsource is not nullptr
  const T* carry;         ///< [N, D], added where not nullptr: the source's share in the next one
  T* dsource;             ///< dLoss/dv_i [N, D]
  T* keep;                ///< a second copy of it where not nullptr
};
template <class T>
void fused_gather(const RowLayout& row, const Gather<T>& gather, cudaStream_t stream);

/// Up to kMaxGroup consecutive sources against their consumers after the group, each row G_l read
/// once.  The last source, all of whose consumers these are, is finished.
template <class T>
struct GroupGather {
  int64_t tokens;
  const T* source[kMaxGroup];
  const float* rstd[kMaxGroup];
  const T* gradients;
  const float* delta;
  const float* folded;
  const float* weights;
  float* errors;
  const int* sites;      ///< the consumers after the group, ascending
  const int64_t* pairs;  ///< [count, kMaxGroup], -1: the site does not read this source
  int count, sources;
  PartialGather partials[kMaxGroup];  ///< of all but the last source
  const T* carry;
  T* dsource;  ///< of the last source
  T* keep;
};
template <class T>
void grouped_gather(const RowLayout& row, const GroupGather<T>& group, cudaStream_t stream);

/// dw of every site that reads a source, all at once:  dw_l += sum_n e_il r_i v_i.
/// Adds to partials [query_gradient_chunks, L+2, D]; chunk k holds the sum over its tokens.
template <class T>
struct QueryGradient {
  int64_t tokens;
  const T* source;
  const float* rstd;
  const float* errors;
  const Consumer* consumers;
  int count, channels, heads, sites;  ///< sites = L + 2
  float* partials;
};
template <class T>
void query_gradient(const QueryGradient<T>& gradient, cudaStream_t stream);
int query_gradient_chunks(int64_t tokens, int channels, int heads);

/// Naive backward, the textbook form, seen from one site: adds to the float gradients of all its
/// sources [S, N, D] and writes e.
template <class T>
struct Scatter {
  int64_t tokens;
  int channels, heads;
  const T* bank;
  const float* rstd;
  const int* sources;
  int count;
  const float* folded;   ///< [D]
  const float* weights;  ///< [count, N, H]
  const T* gradient;     ///< G [N, D]
  const float* delta;    ///< [N, H]
  float* errors;         ///< [count, N, H]
  float* dsources;       ///< [S, N, D], added to
};
template <class T>
void naive_scatter(const Scatter<T>& scatter, cudaStream_t stream);
/// delta[n,h] = sum_{c in h} G o.
template <class T>
void naive_delta(const T* gradient, const T* output, float* delta, int64_t tokens, int channels,
                 int heads, cudaStream_t stream);
/// dw[c] = sum_n sum_k e_k r_k v_k: one thread per channel.
template <class T>
void naive_query_gradient(const Scatter<T>& scatter, float* dfolded, cudaStream_t stream);

// ---- Elementwise, all plans ----

/// w = q ∘ g.
void fold_query(const float* query, const float* key_gain, float* folded, int channels,
                cudaStream_t stream);
/// Sums `rows` rows of stride `stride` in order:  dw;  then dq += dw ∘ g;  dg += dw ∘ q.
void unfold_query_gradient(const float* partials, int rows, int64_t stride, const float* query,
                           const float* key_gain, float* dquery, float* dkey_gain, int channels,
                           cudaStream_t stream);
/// out[c] += sum over rows of partials [rows, width] in order.
void add_rows(const float* partials, int rows, int64_t stride, float* out, int width,
              cudaStream_t stream);

/// to = a + b; to may be a or b.  All [count].
template <class T>
void add(const T* a, const T* b, T* to, int64_t count, cudaStream_t stream);
/// to = alpha * x, alpha on the device.
template <class T>
void scale(const T* x, const float* gate, T* to, int64_t count, cudaStream_t stream);
/// The residual stream, kept in float:  residual = (fresh ? 0 : residual) + x.
template <class T>
void add_to_stream(float* residual, const T* x, bool fresh, int64_t count, cudaStream_t stream);
/// to = residual + alpha * o.  o may be nullptr, and is not read where alpha is 0: the residual
/// model, bit for bit.  alpha = *gate on the device, 1 where gate is nullptr.
template <class T>
void read_stream(const float* residual, const T* o, const float* gate, T* to, int64_t count,
                 cudaStream_t stream);
/// sums[n] = <x_n, y_n>.
template <class T>
void row_dots(const T* x, const T* y, float* sums, int64_t tokens, int channels,
              cudaStream_t stream);
/// to = from, rounded to T.
template <class T>
void convert(const float* from, T* to, int64_t count, cudaStream_t stream);

}  // namespace attnres::ATTNRES_BACKEND
