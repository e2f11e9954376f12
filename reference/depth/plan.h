// Who reads what: the depth plan.  Every form of depth attention differs in its plan alone.
// Attention Residuals, arXiv 2603.15031, sections 3 (full) and 4 (block).
#pragma once

#include <string>
#include <vector>

#include "reference/config.h"

namespace attnres {

/// Sublayers are numbered 1..L and write source 1..L; source 0 is the token embedding.  Site l
/// reads the depth history before sublayer l; site L+1 is the readout before the final norm.
///
/// Source l is the raw output v_l of sublayer l where the block is one sublayer long, and the
/// running partial sum of its block otherwise, so a block b_n is the last source of its sublayers.
struct DepthPlan {
  Index sublayers = 0;  ///< L

  /// continues[l]: source l = source l-1 + output of sublayer l;  otherwise the output alone.
  std::vector<bool> continues;

  /// sources[l], l = 1..L+1: the sources that site l reads, oldest first.  sources[0] is empty.
  std::vector<std::vector<Index>> sources;

  struct Consumer {
    Index site;      ///< l
    Index position;  ///< index of the source in sources[l]
  };
  /// consumers[i], i = 0..L: every site that reads source i, R^-1(i) of the gather form.
  std::vector<std::vector<Consumer>> consumers;

  Index sites() const { return sublayers + 1; }
  Index pairs() const;  ///< number of (site, source) pairs: what routing costs
};

/// The plan of a variant: full (block_sublayers 1, window 0), block, or sliding window.
/// Blocks have `block_sublayers` sublayers and the last takes the remainder; the first site of a
/// block reads finished blocks only; the readout reads all of them, and the last, even if partial.
/// The readout of the delta form is the residual stream: its list is empty.
DepthPlan make_depth_plan(Index sublayers, const DepthMixing& mixing);

/// "embedding", "layer 3 attention", "layer 3 mlp": what wrote source i, for people.
std::string source_name(Index source);
/// The parameter name of site l without "_proj.weight": "model.layers.0.mlp_res", ...
std::string site_name(const DepthPlan& plan, Index site);

}  // namespace attnres
