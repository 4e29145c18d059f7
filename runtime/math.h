#pragma once
// exp, log, tanh, erf as branch-free polynomials with stated errors, for host and device.
