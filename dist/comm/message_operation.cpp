#include <iterator>
#include <optional>
#include <utility>

#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/operation.h"
#include "keel/dist/comm/signature.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// What messages of a group are about; collectives and messages between two ranks are counted apart.
enum class Channel : std::uint64_t { signature, data, offer, reply, message, kinds };

std::uint64_t tag_of(Channel channel, std::uint32_t sequence) {
  return std::uint64_t{sequence} * static_cast<std::uint64_t>(Channel::kinds) + static_cast<std::uint64_t>(channel);
}

// What a rank sends first travels with the signatures up to this size of all its messages; the others keep it until
// they agree.
constexpr std::size_t kEarly = std::size_t{8} << 10;  // bytes

class MessageOperation : public GroupOperation {
 public:
  MessageOperation(std::shared_ptr<Group> group, const Collective& collective)
      : GroupOperation(std::move(group), collective), signatures_(static_cast<std::size_t>(group_->size())) {
    memory_ = std::make_shared<Memory>(Memory{collective_.input, collective_.output});
    traits_of(collective.kind).is_message ? offer() : exchange_signatures();
  }

 private:
  struct Pending {
    std::unique_ptr<Message> message;
    int peer;
    bool is_receive;
  };
  // What messages are about; outlives the operation where a transport needs it longer.
  struct Memory {
    Tensor input, output, scratch = {};
  };

  // To every rank, and from it.
  void exchange_signatures() {
    const std::uint32_t sequence = group_->sequence++;
    number_ = sequence;
    data_tag_ = tag_of(Channel::data, sequence);
    sign(sequence);
    for (int i = 1; i < group_->size(); ++i)
      swap_signatures((group_->rank() + i) % group_->size(), tag_of(Channel::signature, sequence),
                      tag_of(Channel::signature, sequence));
  }
  // Between a sender and a receiver.
  void offer() {
    const bool sends = collective_.kind == CollectiveKind::send;
    const int peer = collective_.peer;
    const std::uint32_t sequence = (sends ? group_->sent : group_->received)[static_cast<std::size_t>(peer)]++;
    number_ = sequence;
    data_tag_ = tag_of(Channel::message, sequence);
    sign(sequence);
    signatures_[own()].kind = CollectiveKind::send;
    swap_signatures(peer, tag_of(sends ? Channel::offer : Channel::reply, sequence),
                    tag_of(sends ? Channel::reply : Channel::offer, sequence));
  }
  void sign(std::uint32_t sequence) {
    signatures_[own()] = Signature(sequence, collective_, group_->algorithm_number, group_->rank());
  }
  void swap_signatures(int peer, std::uint64_t send_tag, std::uint64_t receive_tag) {
    partners_.push_back(peer);
    Transport& transport = *group_->transport;
    pending_.push_back({transport.send(peer, send_tag, &signatures_[own()], sizeof(Signature)), peer, false});
    pending_.push_back(
        {transport.receive(peer, receive_tag, &signatures_[static_cast<std::size_t>(peer)], sizeof(Signature)), peer,
         true});
    group_->traffic.control += sizeof(Signature);
  }

  bool proceed() override {
    if (!schedule_) send_early();
    while (transfers_finished())
      if (!begin_next_step()) return true;
    return false;
  }
  bool transfers_finished() {
    std::erase_if(pending_, [](const Pending& pending) { return pending.message->has_finished(); });
    return pending_.empty();
  }

  // Sends what the first step with messages sends. No result is written before ranks agree, so what an earlier step
  // would have copied goes from where it is.
  void send_early() {
    find_schedule();
    const std::vector<Step>& steps = schedule_->steps;
    std::size_t first = 0, bytes = 0;
    while (first < steps.size() && steps[first].sends.empty() && steps[first].receives.empty()) ++first;
    if (first == steps.size()) return;
    std::vector<Transfer> sends;
    for (const Transfer& send : steps[first].sends) {
      const std::optional<Piece> source = source_of(send.piece, first);
      if (!source) return;
      sends.push_back({send.peer, *source});
      bytes += static_cast<std::size_t>(send.piece.span.count()) * size_of(collective_.dtype());
    }
    if (bytes > kEarly) return;
    send_all(sends, early_);
    early_step_ = first;
  }
  // Where the piece's numbers are before the first steps of the schedule, which have no messages and at most one copy;
  // nothing where these steps do something else.
  std::optional<Piece> source_of(const Piece& piece, std::size_t steps) const {
    std::vector<Combination> done;
    for (std::size_t i = 0; i < steps; ++i)
      done.insert(done.end(), schedule_->steps[i].combinations.begin(), schedule_->steps[i].combinations.end());
    if (done.empty()) return piece;
    const Piece& made = done.front().result;
    const bool is_its_copy = done.size() == 1 && done.front().terms.size() == 1 && made.place == piece.place &&
                             made.span.begin == piece.span.begin && made.span.end == piece.span.end;
    return is_its_copy ? std::optional(done.front().terms.front()) : std::nullopt;
  }

  // False where there is none.
  bool begin_next_step() {
    if (!std::exchange(has_agreed_, true)) agree();
    else combine_all(schedule_->steps[next_ - 1]);
    if (next_ == schedule_->steps.size()) {
      finish_mean(*group_->algorithm, collective_, group_->size());
      return false;
    }
    const Step& step = schedule_->steps[next_++];
    for (const Transfer& receive : step.receives) {
      const Tensor piece = at(receive.piece);
      pending_.push_back(
          {group_->transport->receive(receive.peer, data_tag_, piece.raw(), piece.bytes()), receive.peer, true});
      pending_.back().message->keep(memory_);
    }
    if (early_step_ == next_ - 1) {
      std::move(early_.begin(), early_.end(), std::back_inserter(pending_));
      early_.clear();
    } else {
      send_all(step.sends, pending_);
    }
    return true;
  }
  void send_all(const std::vector<Transfer>& sends, std::vector<Pending>& messages) {
    for (const Transfer& send : sends) {
      const Tensor piece = at(send.piece);
      messages.push_back({group_->transport->send(send.peer, data_tag_, piece.raw(), piece.bytes()), send.peer, false});
      messages.back().message->keep(memory_);
      sent_ += group_->count_sent(send.peer, static_cast<std::int64_t>(piece.bytes()));
    }
  }
  void combine_all(const Step& step) {
    for (const Combination& combination : step.combinations) combine(combination);
  }

  void agree() {
    std::vector<Signature> asked = {signatures_[own()]};
    if (partners_.size() + 1 == signatures_.size()) asked = signatures_;
    else
      for (const int peer : partners_) asked.push_back(signatures_[static_cast<std::size_t>(peer)]);
    const std::string found = difference(asked);
    if (!found.empty()) throw Error(found, ErrorKind::peer);
  }
  void find_schedule() {
    schedule_ = group_->schedule_of(collective_);
    if (schedule_->scratch != 0)
      memory_->scratch = empty((collective_.output.defined() ? collective_.output : collective_.input).context(),
                               {schedule_->scratch}, collective_.dtype(), Purpose::workspace);
  }

  Tensor at(const Piece& piece) const {
    const Tensor& all = piece.place == Place::input    ? collective_.input
                        : piece.place == Place::output ? collective_.output
                                                       : memory_->scratch;
    return all.slice(0, piece.span.begin, piece.span.end);
  }

  void combine(const Combination& combination) {
    std::vector<Tensor> terms;
    for (const Piece& term : combination.terms) terms.push_back(at(term));
    const Tensor result = at(combination.result);
    if (terms.size() == 1 && terms.front().raw() == result.raw()) return;
    kernels::combine({terms, result, op_of(*group_->algorithm, collective_.op)});
  }

  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (const Pending& pending : pending_)
      if (pending.is_receive) ranks.push_back(pending.peer);
    return ranks;
  }
  void release() override {
    pending_.clear();
    early_.clear();
    memory_.reset();
  }

  std::vector<Signature> signatures_;  // by rank
  std::vector<int> partners_;          // whose signatures are awaited
  std::uint64_t data_tag_ = 0;
  std::shared_ptr<const Schedule> schedule_;
  std::shared_ptr<Memory> memory_;
  std::vector<Pending> pending_, early_;  // early: that others receive once they agree
  std::optional<std::size_t> early_step_ = {};
  bool has_agreed_ = false;
  std::size_t next_ = 0;  // of the schedule's steps
};

}  // namespace

std::shared_ptr<GroupOperation> make_message_operation(std::shared_ptr<Group> group, const Collective& collective) {
  return std::make_shared<MessageOperation>(std::move(group), collective);
}

}  // namespace keel
