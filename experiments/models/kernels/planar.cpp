// Many training steps for stacks of models of learned depth (experiments/models/depth.py). The loss is the mean squared
// error over one full batch of points.
#include <cstdint>
#include <new>

#include "planar.h"

extern "C" {

// Layers with one boundary each; job->hidden is not used. Returns 0 on success, or 2 if memory ran out.
int64_t ngn_layers_advance(const Job *job) {
  try {
    return Layers::run(*job), 0;
  } catch (const std::bad_alloc &) {
    return 2;
  }
}

// A chain of maps with job->hidden units each.
int64_t ngn_chain_advance(const Job *job) { return run<TrainedChain>(*job); }
}
