// Stacks of models of learned depth (experiments/models/depth.py): whole stretches of training on the mean squared error over
// one full batch of points.
#include <cstdint>
#include <new>

#include "planar.h"

extern "C" {

// Layers with a boundary each; job->hidden does not matter. Returns 0, or 2 if memory ran out.
int64_t ngn_layers_advance(const Job *job) {
  try {
    return Layers::run(*job), 0;
  } catch (const std::bad_alloc &) {
    return 2;
  }
}

// A chain of updates with job->hidden units each.
int64_t ngn_chain_advance(const Job *job) { return run<TrainedChain>(*job); }
}
