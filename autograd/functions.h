#pragma once
// Every differentiable function.

#include "keel/autograd/attention.h"
#include "keel/autograd/attention_spans.h"
#include "keel/autograd/checkpoint.h"
#include "keel/autograd/elementwise.h"
#include "keel/autograd/embedding.h"
#include "keel/autograd/gated.h"
#include "keel/autograd/linear_cross_entropy.h"
#include "keel/autograd/loss.h"
#include "keel/autograd/matmul.h"
#include "keel/autograd/norm.h"
#include "keel/autograd/reduce.h"
#include "keel/autograd/rotary.h"
#include "keel/autograd/shape.h"
