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
  return (source % 2 == 1 ? "a" : "m") + std::to_string((source - 1) / 2);
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

std::string heat_map_svg(const DepthReport& report, const std::string& title) {
  if (report.heads == 0) return {};
  const auto columns = columns_of(report);
  const int cell = 26, left = 62, top = 74, gap = 34;
  const int panel = int(columns.size()) * cell;
  const int width = left + int(report.heads) * (panel + gap);
  const int height = top + int(report.sites.size()) * cell + 30;
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      width, height, width, height);
  svg += format("<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n", left, title.c_str());
  for (Index h = 0; h < report.heads; ++h) {
    const int x0 = left + int(h) * (panel + gap);
    svg += format("<text x=\"%d\" y=\"46\">depth head %d</text>\n", x0, int(h) + 1);
    for (std::size_t k = 0; k < columns.size(); ++k)
      svg += format("<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%s</text>\n",
                    x0 + int(k) * cell + cell / 2, top - 8, short_source(columns[k]).c_str());
    for (std::size_t l = 0; l < report.sites.size(); ++l) {
      const int y = top + int(l) * cell;
      if (h == 0)
        svg += format("<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555\">%s</text>\n",
                      left - 8, y + cell / 2 + 4,
                      short_site(Index(l) + 1, Index(report.output_rms.size())).c_str());
      for (std::size_t k = 0; k < columns.size(); ++k) {
        const double w = weight_at(report.sites[l], columns[k], h);
        if (w < 0) continue;
        const auto [r, g, b] = heat_colour(w);
        const int x = x0 + int(k) * cell;
        svg += format("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"/>",
                      x, y, cell - 1, cell - 1, r, g, b);
        svg += format(
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\" "
            "fill=\"%s\">%.0f</text>\n",
            x + cell / 2 - 1, y + cell / 2 + 3, light_text(w) ? "#fff" : "#222", 100 * w);
      }
    }
  }
  svg += format(
      "<text x=\"%d\" y=\"%d\" fill=\"#555\">mean routing weight in percent; rows are sites, "
      "columns sources (emb, aN attention, mN MLP of layer N)</text>\n</svg>\n",
      left, height - 10);
  return svg;
}

}  // namespace attnres
