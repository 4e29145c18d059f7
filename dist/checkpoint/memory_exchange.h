#pragma once
// How the parts of ranks reach their partners: first what they hold (the text of part-R.json), then the files, out of
// memory into memory.

#include <string>
#include <vector>

#include "keel/dist/checkpoint/memory_file.h"
#include "keel/dist/checkpoint/memory_hosts.h"

namespace keel {

class PartExchange {
 public:
  // `folder` and `files`: of the step. All outlive this.
  PartExchange(const MemoryHosts& hosts, Communicator& ranks, const Context& host, const std::string& folder,
               MemoryFiles& files);

  // Every rank calls both, in this order, and only where all of them have come so far. Where ranks have failed: an
  // Error of kind peer. The row of messages to a rank has pieces of 16 MiB at most.
  void send_texts(const std::string& own);
  void send_files();
  // For this rank alone; an Error says what went wrong. Makes the files of what this rank is to keep, after the texts
  // have come.
  void open();
  // Compares what has come with its hashes, and writes each part-R.json.
  void finish();

 private:
  struct Kept {
    int rank = 0;
    std::string text = {};
    Manifest part = {};
  };
  // Bytes that go to a rank or come from it, in their order.
  struct Row {
    int peer = 0;
    std::vector<std::span<std::byte>> pieces = {};
    void add(std::span<std::byte> bytes);
  };
  void travel(const Row& sent, const std::vector<Row>& received);
  void add_files(const Manifest& part, Row& row);

  const MemoryHosts& hosts_;
  Communicator& ranks_;
  const Context& host_;
  const std::string& folder_;
  MemoryFiles& files_;
  std::string own_;
  std::vector<Kept> kept_;
};

}  // namespace keel
