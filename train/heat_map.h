// The depth report as a picture: routing weights in the terminal, everything as SVG.
#pragma once

#include <string>

#include "train/depth_report.h"

namespace attnres {

/// Rows are sites, columns sources, one panel per head; percent in every cell, coloured if asked.
std::string heat_map_text(const DepthReport& report, bool colour);
/// The same panels side by side, and below them bars by depth: entropy of the sites, RMS of the
/// outputs, norm of their gradients.  A residual model has the last two alone.
std::string depth_svg(const DepthReport& report, const std::string& title);

}  // namespace attnres
