// Routing weights as a picture: in the terminal, cells of percent over a colour, and as SVG.
#pragma once

#include <string>

#include "train/depth_report.h"

namespace attnres {

/// Rows are sites, columns sources, one panel per head; percent in every cell, coloured if asked.
std::string heat_map_text(const DepthReport& report, bool colour);
/// The same panels side by side as one SVG document; empty for a model without sites.
std::string heat_map_svg(const DepthReport& report, const std::string& title);

}  // namespace attnres
