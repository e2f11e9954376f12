// Grouped-query causal self-attention over positions, forward and backward, in blocks of queries
// and keys with an online softmax: no T x T matrix is ever kept.
// Vaswani et al. 2017, arXiv 1706.03762, equation 1; grouped queries: Ainslie et al. 2023,
// arXiv 2305.13245; the blocked evaluation: Dao 2023, "FlashAttention-2", arXiv 2307.08691.
#pragma once

#include "reference/tensor.h"

namespace attnres {

/// B sequences of T positions; query head h reads key-value head h / (heads / kv_heads).
struct AttentionShape {
  Index sequences, positions, heads, kv_heads, head_dim;
};

/// For every sequence and head, over key positions j <= t:
///   s[t,j] = <q[t], k[j]> / sqrt(d);   p[t,j] = exp(s[t,j] - lse[t]);   context[t] = sum_j p[t,j]
///   v[j]
/// query, context [B*T, heads*d]; key, value [B*T, kv_heads*d];
/// saves lse[t] = log sum_j exp(s[t,j]) as log_sum_exp [heads, B*T].
template <class Scalar>
void sequence_attention_forward(const AttentionShape& shape, MatrixIn<Scalar> query,
                                MatrixIn<Scalar> key, MatrixIn<Scalar> value,
                                MatrixOut<Scalar> context, MatrixOut<Scalar> log_sum_exp);

/// With delta[t] = <dcontext[t], context[t]>  (the sum over j of p dp, by linearity):
///   dp[t,j] = <dcontext[t], v[j]>;   ds[t,j] = p[t,j] (dp[t,j] - delta[t])
///   dq[t] = sum_j ds[t,j] k[j] / sqrt(d);   dk[j] = sum_t ds[t,j] q[t] / sqrt(d);
///   dv[j] = sum_t p[t,j] dcontext[t]
/// p is recomputed from log_sum_exp.  dquery, dkey, dvalue are overwritten.
template <class Scalar>
void sequence_attention_backward(const AttentionShape& shape, MatrixIn<Scalar> dcontext,
                                 MatrixIn<Scalar> query, MatrixIn<Scalar> key,
                                 MatrixIn<Scalar> value, MatrixIn<Scalar> context,
                                 MatrixIn<Scalar> log_sum_exp, MatrixOut<Scalar> dquery,
                                 MatrixOut<Scalar> dkey, MatrixOut<Scalar> dvalue);

}  // namespace attnres
