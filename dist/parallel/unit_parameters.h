#pragma once
// The parameters of one unit on one rank: whole, or this rank's shard, which is gathered for those who read.

#include <functional>
#include <memory>
#include <vector>

#include "keel/dist/parallel/gatherer.h"
#include "keel/dist/parallel/page.h"

namespace keel {

class UnitParameters {
 public:
  // Gives the unit's buffer its values. The unit must outlive it.
  explicit UnitParameters(const UnitSite& unit);
  ~UnitParameters();
  UnitParameters(const UnitParameters&) = delete;
  UnitParameters& operator=(const UnitParameters&) = delete;

  // The owned elements, dense, on the device.
  const Tensor& own_values() const { return own_values_; }
  // The same as the optimizer reads and writes them, in the memory where it works: own_values(), or a copy.
  const Tensor& update_values() const { return update_values_; }
  const Tensor& own_master() const { return own_master_; }  // undefined without masters
  // The weights as the optimizer sees them, in fp32 where there are masters.
  const Tensor& own_weights() const { return own_master_.defined() ? own_master_ : update_values_; }

  // adopt_weights() copies own_weights() to the values, on the device, too; send_values() copies update_values() to the
  // device, or a part of them, which `values` holds. share_updates() sends them to the other ranks.
  void adopt_weights();
  void send_values();
  void send_values(Span part, const Tensor& values);
  void share_updates();

  // Where they are sharded: gather() begins to gather the whole ones (it does nothing where they are there),
  // wait_gathered() blocks until they are there, and release() gives their memory back. Of an engine's units its
  // schedule alone gathers and releases: whoever reads weights touches them, and calls Sharded::release_weights() in
  // the end.
  void gather();
  void wait_gathered();
  void release();
  // Of what a gather reads from a file, begins to read it.
  void fetch();
  // Called where somebody reads the whole parameters, before they are gathered for it. Where it returns false, it has
  // asked for nothing.
  void when_touched(std::function<bool()> told) { told_of_touch_ = std::move(told); }
  // What lies in files of that which an update reads and writes.
  std::vector<Page*> pages();
  // The pages of update_values() and own_master(); null where these lie in memory.
  Page* update_page() const {
    return update_values_.storage() == own_values_.storage() ? values_page_.get() : update_page_.get();
  }
  Page* master_page() const { return master_page_.get(); }

 private:
  void begin_gather();
  void touch();
  // Whether whole parameters are read from a file, and not gathered from one.
  bool reads_whole() const { return values_page_ && !unit_.split.shards_parameters; }

  const UnitSite& unit_;
  std::unique_ptr<Gatherer> gatherer_;
  Tensor own_values_, own_master_, update_values_;
  Work gathering_;
  bool gathering_active_ = false;
  std::function<bool()> told_of_touch_;
  std::unique_ptr<Page> values_page_, master_page_, update_page_;
};

}  // namespace keel
