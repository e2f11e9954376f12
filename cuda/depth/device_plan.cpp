#include "cuda/depth/device_plan.h"

#include <algorithm>
#include <set>

namespace attnres::ATTNRES_BACKEND {

DevicePlan::DevicePlan(const DepthPlan& plan, int group)
    : group_(group), last_read_(int(plan.sublayers)) {
  while (last_read_ > 0 && plan.consumers[last_read_].empty()) --last_read_;
  std::vector<int> sources;
  for (Index site = 0; site <= plan.sites(); ++site) {
    const auto& list = plan.sources[site];
    sources_at_.push_back(int(sources.size()));
    sources.insert(sources.end(), list.begin(), list.end());
    const int first = site == 0 ? 0 : first_of_group(int(site));
    old_.push_back(
        int(std::count_if(list.begin(), list.end(), [&](Index i) { return i < first; })));
  }
  sources_at_.push_back(int(sources.size()));
  std::vector<Consumer> consumers;
  for (Index source = 0; source <= plan.sublayers; ++source) {
    consumers_at_.push_back(int(consumers.size()));
    int inner = 0;
    for (const auto& [site, position] : plan.consumers[source]) {
      consumers.push_back({int(site), first_pair(int(site)) + position});
      inner += site <= last_of_group(int(source));
    }
    inner_.push_back(inner);
  }
  consumers_at_.push_back(int(consumers.size()));
  sources_ = DeviceArray<int>(sources);
  consumers_ = DeviceArray<Consumer>(consumers);
  if (group_ == 1) return;
  make_site_groups(plan);
  make_source_groups(plan);
}

void DevicePlan::make_site_groups(const DepthPlan& plan) {
  std::vector<int> old_sources, positions;
  site_groups_.resize(std::size_t(plan.sites()) + 1);
  sites_in_group_.resize(site_groups_.size());
  for (int first = 1; first <= plan.sites(); first += group_) {
    std::set<int> old;
    const int end = std::min(first + group_, int(plan.sites()) + 1);
    for (int site = first; site < end; ++site) {
      sites_in_group_[first] += !plan.sources[site].empty();  // the delta form's readout reads none
      for (const Index i : plan.sources[site])
        if (i < first) old.insert(int(i));
    }
    site_groups_[first] = {int(old_sources.size()), int(old.size())};
    for (const int source : old) {
      old_sources.push_back(source);
      for (int j = 0; j < kMaxGroup; ++j) {
        int position = -1;
        if (first + j < end)
          for (int k = 0; k < int(plan.sources[first + j].size()); ++k)
            if (plan.sources[first + j][k] == source) position = k;
        positions.push_back(position);
      }
    }
  }
  old_sources_ = DeviceArray<int>(old_sources);
  positions_ = DeviceArray<int>(positions);
}

void DevicePlan::make_source_groups(const DepthPlan& plan) {
  std::vector<int> later_sites;
  std::vector<int64_t> later_pairs;
  source_groups_.resize(std::size_t(plan.sublayers) + 1);
  for (int last = last_read_; last >= 0; last -= group_) {
    std::set<int> later;
    const int first = std::max(0, last - group_ + 1);
    for (int source = first; source <= last; ++source)
      for (const auto& consumer : plan.consumers[source])
        if (consumer.site > last) later.insert(int(consumer.site));
    source_groups_[last] = {int(later_sites.size()), int(later.size())};
    for (const int site : later) {
      later_sites.push_back(site);
      for (int j = 0; j < kMaxGroup; ++j) {
        int64_t pair = -1;
        if (first + j <= last)
          for (const auto& consumer : plan.consumers[first + j])
            if (consumer.site == site) pair = first_pair(site) + consumer.position;
        later_pairs.push_back(pair);
      }
    }
  }
  later_sites_ = DeviceArray<int>(later_sites);
  later_pairs_ = DeviceArray<int64_t>(later_pairs);
}

DevicePlan::SiteGroup DevicePlan::group_of_sites(int first_site) const {
  const auto [at, count] = site_groups_[first_site];
  return {old_sources_.data() + at, positions_.data() + int64_t(at) * kMaxGroup, count,
          sites_in_group_[first_site]};
}

DevicePlan::SourceGroup DevicePlan::group_of_sources(int last_source) const {
  const auto [at, count] = source_groups_[last_source];
  const int first = std::max(0, last_source - group_ + 1);
  return {later_sites_.data() + at, later_pairs_.data() + int64_t(at) * kMaxGroup, count, first,
          last_source - first + 1};
}

std::size_t DevicePlan::bytes() const {
  return sources_.bytes() + consumers_.bytes() + old_sources_.bytes() + positions_.bytes() +
         later_sites_.bytes() + later_pairs_.bytes();
}

}  // namespace attnres::ATTNRES_BACKEND
