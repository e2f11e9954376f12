#include "train/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "train/text.h"

namespace attnres {
namespace {

struct Point {
  double step, loss;
};
using Curve = std::vector<Point>;

constexpr int kWidth = 760, kHeight = 400, kLeft = 56, kRight = 20, kTop = 44, kBottom = 44;

void read_log(const std::filesystem::path& log, Curve& train, Curve& validation) {
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("loss") || !entry["loss"].is_number()) continue;
    (entry.value("type", "") == "evaluation" ? validation : train)
        .push_back({entry.value("step", 0.0), entry["loss"].get<double>()});
  }
}

// The mean of the last `width` losses.
Curve running_mean(const Curve& curve, std::size_t width) {
  Curve mean;
  double sum = 0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    sum += curve[i].loss;
    if (i >= width) sum -= curve[i - width].loss;
    mean.push_back({curve[i].step, sum / double(std::min(i + 1, width))});
  }
  return mean;
}

// Maps steps and losses to the page.
struct Axes {
  double last_step, low, high;
  double x(double step) const {
    return kLeft + (kWidth - kLeft - kRight) * step / std::max(1.0, last_step);
  }
  double y(double loss) const {
    return kTop + (kHeight - kTop - kBottom) * (high - std::clamp(loss, low, high)) / (high - low);
  }
};

std::string polyline(const Curve& curve, const Axes& axes, const char* style) {
  std::string points;
  for (const auto& point : curve)
    points += format("%.1f,%.1f ", axes.x(point.step), axes.y(point.loss));
  return "<polyline fill=\"none\" " + std::string(style) + " points=\"" + points + "\"/>\n";
}

std::string grid(const Axes& axes) {
  std::string svg;
  for (double loss = std::ceil(axes.low * 4) / 4; loss <= axes.high;
       loss += 0.25 * std::ceil((axes.high - axes.low) / 2)) {
    svg += format("<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>", kLeft,
                  kWidth - kRight, axes.y(loss), axes.y(loss));
    svg += format("<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#555\">%.2f</text>\n",
                  kLeft - 8, axes.y(loss) + 4, loss);
  }
  for (int i = 0; i <= 4; ++i) {
    const double step = axes.last_step * i / 4;
    svg += format("<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.0f</text>\n",
                  axes.x(step), kHeight - kBottom + 20, step);
  }
  return svg;
}

}  // namespace

std::string loss_curve_svg(const std::filesystem::path& log, const std::string& title) {
  Curve train, validation;
  read_log(log, train, validation);
  if (train.empty()) return {};
  const Curve mean = running_mean(train, std::max<std::size_t>(1, train.size() / 50));
  double low = mean.back().loss, high = 0;
  for (const auto& point : mean) low = std::min(low, point.loss);
  for (const auto& point : validation) low = std::min(low, point.loss);
  for (const auto& point : train) high = std::max(high, point.loss);
  const Axes axes{train.back().step, low - 0.05 * (high - low), high + 1e-6};
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += format("<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n", kLeft, title.c_str());
  svg += grid(axes);
  svg += polyline(train, axes, "stroke=\"#c9d7e8\"");
  svg += polyline(mean, axes, "stroke=\"#1f5fa8\" stroke-width=\"2\"");
  for (const auto& point : validation)
    svg += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#c0392b\"/>\n",
                  axes.x(point.step), axes.y(point.loss));
  svg += format(
      "<text x=\"%d\" y=\"%d\" text-anchor=\"end\"><tspan fill=\"#1f5fa8\">training</tspan>, "
      "<tspan fill=\"#c0392b\">validation</tspan> loss, nats per token, by step</text>\n</svg>\n",
      kWidth - kRight, kHeight - 8);
  return svg;
}

}  // namespace attnres
