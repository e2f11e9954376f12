#include "train/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "train/text.h"

namespace attnres {
namespace {

// "emb", "a0", "m0", ...: the source in three letters.
std::string short_source(Index source) {
  if (source == 0) return "emb";
  return format("%c%ld", source % 2 == 1 ? 'a' : 'm', long((source - 1) / 2));
}

std::string short_site(Index site, Index last) {
  if (site == last) return "out";
  return (site % 2 == 1 ? "attn " : "mlp ") + std::to_string((site - 1) / 2);
}

// From paper white over amber to deep red and near black: monotone in lightness, so that it also
// reads in grey.  x in [0, 1].
std::array<int, 3> heat_colour(double x) {
  constexpr std::array<std::array<double, 3>, 5> stops = {
      {{255, 250, 240}, {253, 212, 140}, {240, 120, 70}, {170, 30, 70}, {50, 10, 60}}};
  const double at = std::clamp(x, 0.0, 1.0) * double(stops.size() - 1);
  const std::size_t i = std::min<std::size_t>(std::size_t(at), stops.size() - 2);
  std::array<int, 3> colour;
  for (std::size_t c = 0; c < 3; ++c)
    colour[c] = int(std::lround(stops[i][c] + (at - double(i)) * (stops[i + 1][c] - stops[i][c])));
  return colour;
}

bool light_text(double x) { return x > 0.45; }

// All sources that any site reads, in order: the columns.
std::vector<Index> columns_of(const DepthReport& report) {
  std::vector<Index> columns;
  for (const auto& site : report.sites)
    columns.insert(columns.end(), site.sources.begin(), site.sources.end());
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  return columns;
}

// The weight of a source at a site, or -1 where the site does not read it.
double weight_at(const SiteReport& site, Index source, Index head) {
  const auto found = std::find(site.sources.begin(), site.sources.end(), source);
  return found == site.sources.end() ? -1 : site.mean_weight(found - site.sources.begin(), head);
}

}  // namespace

std::string heat_map_text(const DepthReport& report, bool colour) {
  const auto columns = columns_of(report);
  std::string text;
  for (Index h = 0; h < report.heads; ++h) {
    text += format("depth head %d of %d: mean weight in percent, site (row) by source (column)\n",
                   int(h) + 1, int(report.heads));
    text += "          ";
    for (const Index source : columns) text += format("%4s", short_source(source).c_str());
    text += "\n";
    for (std::size_t l = 0; l < report.sites.size(); ++l) {
      text += format("  %-8s", short_site(Index(l) + 1, Index(report.output_rms.size())).c_str());
      for (const Index source : columns) {
        const double w = weight_at(report.sites[l], source, h);
        if (w < 0) {
          text += "   .";
          continue;
        }
        const auto [r, g, b] = heat_colour(w);
        const int ink = light_text(w) ? 255 : 0;
        if (colour)
          text += format("\033[48;2;%d;%d;%dm\033[38;2;%d;%d;%dm", r, g, b, ink, ink, ink);
        text += format("%4.0f", 100 * w);
        if (colour) text += "\033[0m";
      }
      text += "\n";
    }
    text += "\n";
  }
  return text;
}

namespace {

constexpr int kCell = 26, kLeft = 62, kTop = 74, kGap = 34;  // pixels of the heat map
constexpr int kBar = 15, kBarHeight = 90, kBarTop = 40;      // pixels of the bar charts

std::string text_at(int x, int y, const char* anchor, const std::string& text) {
  return format("<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" fill=\"#444\">%s</text>\n", x, y,
                anchor, text.c_str());
}

// One cell: the weight in percent over its colour.
std::string cell_svg(int x, int y, double weight) {
  const auto [r, g, b] = heat_colour(weight);
  return format("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"/>", x, y,
                kCell - 1, kCell - 1, r, g, b) +
         format(
             "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\" "
             "fill=\"%s\">%.0f</text>\n",
             x + kCell / 2 - 1, y + kCell / 2 + 3, light_text(weight) ? "#fff" : "#222",
             100 * weight);
}

// One head's triangle of cells, with its left edge at x0.
std::string panel_svg(const DepthReport& report, Index head, const std::vector<Index>& columns,
                      int x0) {
  std::string svg = text_at(x0, 46, "start", "depth head " + std::to_string(head + 1));
  for (std::size_t k = 0; k < columns.size(); ++k)
    svg += text_at(x0 + int(k) * kCell + kCell / 2, kTop - 8, "middle", short_source(columns[k]));
  for (std::size_t l = 0; l < report.sites.size(); ++l)
    for (std::size_t k = 0; k < columns.size(); ++k) {
      const double w = weight_at(report.sites[l], columns[k], head);
      if (w >= 0) svg += cell_svg(x0 + int(k) * kCell, kTop + int(l) * kCell, w);
    }
  return svg;
}

// Bars from the first value to the last, the largest as high as the chart.
std::string bars_svg(const std::vector<double>& values, int x0, int y0, const std::string& title) {
  const double largest = std::max(1e-30, *std::max_element(values.begin(), values.end()));
  std::string svg = text_at(x0, y0 + 14, "start", title + format(" (largest %.3g)", largest));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int height = int(std::lround(kBarHeight * values[i] / largest));
    svg += format("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#aa1e46\"/>\n",
                  x0 + int(i) * kBar, y0 + kBarTop + kBarHeight - height, kBar - 2, height);
  }
  return svg;
}

// Entropy of every site as a share of the largest possible, log S; mean over heads.
std::vector<double> entropy_shares(const DepthReport& report) {
  std::vector<double> shares;
  for (const auto& site : report.sites) {
    double sum = 0;
    for (const double entropy : site.entropy) sum += entropy;
    const double largest = std::log(double(site.sources.size())) * double(report.heads);
    shares.push_back(largest > 0 ? sum / largest : 0);
  }
  return shares;
}

}  // namespace

std::string depth_svg(const DepthReport& report, const std::string& title) {
  const auto columns = columns_of(report);
  const int panel = int(columns.size()) * kCell + kGap;
  const int bars_top = report.sites.empty() ? 30 : kTop + int(report.sites.size()) * kCell + 30;
  const int bars_width = int(report.output_rms.size() + 1) * kBar + kGap + 60;
  const int charts = report.sites.empty() ? 2 : 3;
  const int width = kLeft + std::max(int(report.heads) * panel, charts * bars_width);
  const int height = bars_top + kBarTop + kBarHeight + 20;
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      width, height, width, height);
  svg += format("<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n", kLeft, title.c_str());
  for (std::size_t l = 0; l < report.sites.size(); ++l)
    svg += text_at(kLeft - 8, kTop + int(l) * kCell + kCell / 2 + 4, "end",
                   short_site(Index(l) + 1, Index(report.output_rms.size())));
  for (Index h = 0; h < report.heads; ++h)
    svg += panel_svg(report, h, columns, kLeft + int(h) * panel);
  if (!report.sites.empty())
    svg += text_at(kLeft, bars_top - 12, "start",
                   "mean routing weight in percent; rows are sites, columns sources (emb, aN "
                   "attention, mN MLP of layer N)");
  int x = kLeft;
  const auto chart = [&](const std::vector<double>& values, const std::string& name) {
    svg += bars_svg(values, x, bars_top, name);
    x += bars_width;
  };
  if (!report.sites.empty()) chart(entropy_shares(report), "entropy of site / log S");
  chart(report.output_rms, "output RMS by depth");
  chart(report.gradient_norm, "gradient norm by depth");
  return svg + "</svg>\n";
}

}  // namespace attnres
