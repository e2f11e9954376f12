// The loss curve of a run's log as SVG.
#pragma once

#include <filesystem>
#include <string>

namespace attnres {

/// Reads the step and evaluation lines of log.jsonl and draws training loss (thin: every step;
/// thick: a running mean) and validation loss (dots), in nats per token.
std::string loss_curve_svg(const std::filesystem::path& log, const std::string& title);

}  // namespace attnres
