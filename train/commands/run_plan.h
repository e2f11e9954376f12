// What a run will cost and do, told before it starts.
#pragma once

#include <string>

#include "data/token_data.h"
#include "train/model.h"
#include "train/run_config.h"

namespace attnres {

/// "depth attention, 2 heads, blocks of 3 sublayers": how the model mixes depth, for a person.
std::string mixing_text(const ModelConfig& config);

/// Prints parameters by kind, FLOPs per token, memory by kind, data, steps, optimizer and machine.
void print_plan(ReferenceModel& model, const RunConfig& run, const DataSplit& data);

}  // namespace attnres
