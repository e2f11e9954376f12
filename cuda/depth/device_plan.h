// The depth plan as kernels read it: lists on the device, cut into groups of sites and of sources.
#pragma once

#include <vector>

#include "cuda/depth/kernels.h"
#include "cuda/device/memory.h"
#include "reference/depth/plan.h"

namespace attnres::ATTNRES_BACKEND {

class DevicePlan {
 public:
  /// Tables for groups of `group` consecutive sites, and of as many sources; 1: no groups.
  DevicePlan(const DepthPlan& plan, int group);

  /// The sources of a site, oldest first.
  const int* sources(int site) const { return sources_.data() + sources_at_[site]; }
  int source_count(int site) const { return sources_at_[site + 1] - sources_at_[site]; }
  /// How many of them were finished before the site's group; they come first.
  int old_source_count(int site) const { return old_[site]; }
  /// The number of pairs (site, source) before those of a site: where its weights lie.
  int64_t first_pair(int site) const { return sources_at_[site]; }

  /// The sites that read a source, ascending.
  const Consumer* consumers(int source) const { return consumers_.data() + consumers_at_[source]; }
  int consumer_count(int source) const { return consumers_at_[source + 1] - consumers_at_[source]; }
  /// How many of them lie inside the source's group; they come first.
  int inner_consumer_count(int source) const { return inner_[source]; }

  /// Groups of sites begin at site 1; groups of sources end at the last source that a site reads.
  int first_of_group(int site) const { return site - (site - 1) % group_; }
  int last_of_group(int source) const {
    return last_read_ - (last_read_ - source) / group_ * group_;
  }
  int last_read() const { return last_read_; }

  /// A group of sites against the sources finished before it: see GroupForward.
  struct SiteGroup {
    const int* sources;
    const int* positions;
    int count, sites;
  };
  SiteGroup group_of_sites(int first_site) const;
  /// A group of sources against the sites after it: see GroupGather.
  struct SourceGroup {
    const int* sites;
    const int64_t* pairs;
    int count, first, sources;
  };
  SourceGroup group_of_sources(int last_source) const;

  std::size_t bytes() const;

 private:
  void make_site_groups(const DepthPlan& plan);
  void make_source_groups(const DepthPlan& plan);

  struct Range {
    int at = 0, count = 0;
  };
  int group_, last_read_;
  std::vector<int> sources_at_, consumers_at_, old_, inner_;
  std::vector<Range> site_groups_, source_groups_;  // by first site, by last source
  std::vector<int> sites_in_group_;                 // by first site
  DeviceArray<int> sources_, old_sources_, positions_, later_sites_;
  DeviceArray<int64_t> later_pairs_;
  DeviceArray<Consumer> consumers_;
};

}  // namespace attnres::ATTNRES_BACKEND
