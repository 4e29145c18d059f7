#pragma once
// What all ranks of a group do together or not at all.

#include <functional>
#include <string>

#include "keel/dist/comm/communicator.h"

namespace keel {

// An Error that every rank of the group throws, so that one of them may tell it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// For a handler: whether every rank throws the exception that this one does. Then all may go on together; a rank alone
// always may.
bool is_thrown_by_all(const Communicator& communicator);

// Runs f. Where it throws on any rank, every rank throws: the error of the first such rank, of the same kind. A rank
// alone just runs it. f must ask for no collective.
void together(Communicator& communicator, const std::function<void()>& f);

// Throws on every rank the same AgreedError, which names the first rank whose lines differ from rank 0's and the first
// such line; `what` opens it ("ranks differ in their model"). Every rank calls it.
void check_agreement(Communicator& communicator, const std::string& lines, const std::string& what);

}  // namespace keel
