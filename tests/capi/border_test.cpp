// The border to C: every function with every kind of wrong argument, messages, threads, and silence.

#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <regex>
#include <set>
#include <thread>
#include <tuple>

#include "tests/capi/handles.h"
#include "tests/process_state.h"

namespace keel {
namespace {

using namespace keel::testing;

// What an argument may be: one good value, made anew for each call, and bad ones.
template <class T>
struct Slot {
  std::function<T()> good;
  std::vector<T> bad = {};
};
template <class T>
Slot<T> any(T value) {
  return {[=] { return value; }};
}
template <class T>
Slot<T> needed(T value, std::vector<T> bad = {}) {
  if constexpr (std::is_pointer_v<T>) bad.push_back(nullptr);
  return {[=] { return value; }, bad};
}

// Calls every function of keel.h, each in the midst of a session that works.
class Border {
 public:
  Border() {
    std::ofstream(yaml_) << "steps: 1\nmodel: {layers: 1, heads: 1, width: 4, block: 4, vocabulary: 5}\nthreads: 1\n"
                            "data: {type: addition, digits: 1}\nbatch: {global: 64, micro: 1}\n";
    EXPECT_KEEL(keel_settings_load(settings_, yaml_.c_str()));
    remake();
  }

  // One row for each function of keel.h.
  void each_function(std::mt19937_64& draw) {
    draw_ = &draw;
    const auto settings = handle<const keel_settings>(settings_.handle), no_settings = [&] {
      auto slot = settings;
      std::erase(slot.bad, nullptr);
      return slot;
    }();
    const auto own_settings = handle<keel_settings>(settings_.handle);
    const auto context = handle<const keel_context>(context_.handle);
    const auto own_context = handle<keel_context>(context_.handle);
    const auto array = [&](const CArray& a) { return handle<const keel_array>(a.handle); };
    const auto model = handle<keel_model>(model_.handle);
    const auto const_model = handle<const keel_model>(model_.handle);
    const auto text = [](const char* good, std::vector<const char*> bad = {}) {
      return needed<const char*>(good, std::move(bad));
    };
    const auto place = any<double*>(&number_);
    const double nan = std::numeric_limits<double>::quiet_NaN();

    row("keel_version", keel_version, needed(&whole_), needed(&whole_), needed(&whole_));

    row("keel_settings_create", keel_settings_create, made<keel_settings, keel_settings_destroy>());
    row("keel_settings_load", keel_settings_load, own_settings, text(yaml_.c_str(), {"/nowhere.yaml", "/", ""}));
    row("keel_settings_set", keel_settings_set, own_settings, text("clip", {"", "clop", "data.path", "=", "run"}),
        text("1"));
    row("keel_settings_log", keel_settings_log, own_settings, any<keel_log_function>(nullptr), any<void*>(nullptr));
    row("keel_settings_destroy", keel_settings_destroy, to_destroy(keel_settings_create));

    row("keel_context_create", keel_context_create, no_settings, made<keel_context, keel_context_destroy>());
    row("keel_context_ranks", keel_context_ranks, context, any(&whole_), any(&whole_));
    row("keel_context_create_tcp", keel_context_create_tcp, needed(0, {-1, 1}), needed(1, {-1, 0, 1 << 30}),
        text("localhost:0", {"", "nowhere", "localhost:x"}), any<const char*>(nullptr), needed(5.0, {0, -1, nan}),
        no_settings, made<keel_context, keel_context_destroy>());
    row("keel_team_create", keel_team_create, needed(1, {-1, 0, 1 << 30}), needed(5.0, {0, -1, nan}),
        made<keel_team, keel_team_destroy>());
    row("keel_context_create_thread", keel_context_create_thread,
        Slot<keel_team*>{[this] {
                           team_ = CTeam();
                           EXPECT_KEEL(keel_team_create(1, 5, team_.out()));
                           return static_cast<keel_team*>(team_);
                         },
                         {nullptr, static_cast<keel_team*>(const_cast<void*>(stale_))}},
        needed(0, {-1, 1}), no_settings, made<keel_context, keel_context_destroy>());
    row("keel_team_destroy", keel_team_destroy,
        to_destroy<keel_team>([](keel_team** to) { return keel_team_create(1, 5, to); }));
    row("keel_context_destroy", keel_context_destroy,
        to_destroy<keel_context>([](keel_context** to) { return keel_context_create(nullptr, to); }));
    // MPI does not run here: no communicator is a good one.
    row<Good::none>("keel_context_create_mpi", keel_context_create_mpi,
                    needed<std::int64_t>(0, {-1, std::int64_t{1} << 40}), no_settings,
                    made<keel_context, keel_context_destroy>());

    row("keel_array_create", keel_array_create, context,
        needed<void*>(numbers_, {reinterpret_cast<char*>(numbers_) + 1}), needed<int>(KEEL_F32, {-1, 7}),
        needed<int>(KEEL_HOST, {-1, 2, KEEL_DEVICE}), needed(2, {-1, 9, 1 << 30}),
        needed<const std::int64_t*>(shape_, {negative_, huge_}),
        Slot<const std::int64_t*>{[this] { return dense_; }, {negative_, huge_}},
        made<keel_array, keel_array_destroy>());
    row("keel_array_destroy", keel_array_destroy, to_destroy<keel_array>([this](keel_array** to) {
          return keel_array_create(context_, numbers_, KEEL_F32, KEEL_HOST, 2, shape_, nullptr, to);
        }));

    const auto batch = handle<const keel_batch>(batch_.handle);
    const auto own_batch = handle<keel_batch>(batch_.handle);
    row("keel_batch_create", keel_batch_create, context, made<keel_batch, keel_batch_destroy>());
    row("keel_batch_input", keel_batch_input, own_batch, any<const char*>("input"), array(x_));
    row("keel_batch_target", keel_batch_target, own_batch, any<const char*>("output"), array(y_));
    row("keel_batch_weights", keel_batch_weights, own_batch, array(w_));
    EXPECT_KEEL(keel_batch_weights(batch_, w_));  // not another array that a row has tried
    EXPECT_KEEL(keel_batch_input(batch_, "input", x_));
    EXPECT_KEEL(keel_batch_target(batch_, "output", y_));
    row("keel_batch_destroy", keel_batch_destroy,
        to_destroy<keel_batch>([this](keel_batch** to) { return keel_batch_create(context_, to); }));

    row("keel_model_create_mlp", keel_model_create_mlp, own_context, no_settings,
        needed<const std::int64_t*>(widths_, {negative_, huge_}), needed(2, {-1, 0, 1, 1 << 30}),
        text("relu", {"", "rely"}), text("mse", {"", "mae"}), made<keel_model, keel_model_destroy>());
    row("keel_model_create_text", keel_model_create_text, own_context, no_settings,
        text("dense 3 relu; dense 2", {"", "dens 3", "dense", "dense 0", "input a 3", ";"}),
        needed<std::int64_t>(2, {-1, 0, std::int64_t{1} << 40}), text("mse", {"", "mae"}),
        made<keel_model, keel_model_destroy>());
    row("keel_model_create", keel_model_create, own_context, no_settings, made<keel_model, keel_model_destroy>());
    row("keel_model_loss", keel_model_loss, model, any<keel_loss_function>(nullptr), any<void*>(nullptr));
    row("keel_model_parameters", keel_model_parameters, const_model, needed(&count_));
    row("keel_model_destroy", keel_model_destroy, to_destroy<keel_model>([this](keel_model** to) {
          return keel_model_create_mlp(context_, nullptr, widths_, 2, "relu", "mse", to);
        }));

    row("keel_train_step", keel_train_step, model, array(x_), array(y_), needed(1e-3, {-0.5, nan, HUGE_VAL, -2}), place,
        place, any(&whole_));
    row("keel_train_accumulate", keel_train_accumulate, model, array(x_), array(y_), place);
    row("keel_infer", keel_infer, model, array(x_), array(y_));
    row("keel_train_batch", keel_train_batch, model, batch, needed(1e-3, {-0.5, nan, HUGE_VAL, -2}), place, place,
        any(&whole_));
    row("keel_train_backward", keel_train_backward, model, batch, any(0), place);
    row("keel_evaluate", keel_evaluate, model, batch, needed(&number_));
    row("keel_infer_batch", keel_infer_batch, model, batch);
    row("keel_parameter_name", keel_parameter_name, const_model, needed<std::int64_t>(7, {-1}), needed(&name_));
    row("keel_parameter_shape", keel_parameter_shape, const_model, text("layers.0.weight", {"", "layers.9.weight"}),
        needed(&whole_), needed(extents_));
    row("keel_get_weights", keel_get_weights, model, text("layers.0.weight", {"", "layers.0.bias"}), array(v_));
    row("keel_set_weights", keel_set_weights, model, text("layers.0.weight", {"", "layers.0.bias"}), array(v_));
    // Between the last part of a step and the step.
    const auto make_whole = [this] {
      keel_status whole = keel_train_backward(model_, batch_, 1, nullptr);
      EXPECT_TRUE(whole == KEEL_OK || std::string(keel_last_error()).find("is whole") != std::string::npos);
      return static_cast<keel_model*>(model_);
    };
    row("keel_get_gradient", keel_get_gradient, Slot<keel_model*>{make_whole, model.bad},
        text("layers.0.weight", {"", "layers.0.bias"}), array(v_));
    row("keel_train_update", keel_train_update, Slot<keel_model*>{make_whole, model.bad},
        needed(1e-3, {-0.5, nan, HUGE_VAL, -2}), place, any(&whole_));

    row("keel_model_save", keel_model_save, const_model, text(saved_.c_str(), {"", "/proc/keel"}));
    // One at a time: whoever begins one finds none under way, and whoever ends one finds one.
    const auto end_save = [this] {
      int state = KEEL_SAVE_NONE;
      EXPECT_KEEL(keel_model_save_poll(model_, &state));
      if (state == KEEL_SAVE_UNDER_WAY) { EXPECT_KEEL(keel_model_save_finish(model_)); }
    };
    row("keel_model_save_begin", keel_model_save_begin, model,
        Slot<const char*>{[=, this] {
                            end_save();
                            return saved_.c_str();
                          },
                          {"", "/proc/keel", nullptr}});
    end_save();
    row("keel_model_save_poll", keel_model_save_poll, model, needed(&whole_));
    row("keel_model_save_finish", keel_model_save_finish,
        Slot<keel_model*>{[=, this] {
                            end_save();
                            EXPECT_KEEL(keel_model_save_begin(model_, saved_.c_str()));
                            return static_cast<keel_model*>(model_);
                          },
                          model.bad});
    row("keel_model_load", keel_model_load, model, text(saved_.c_str(), {"", "/nowhere", "/"}));
    row("keel_export_weights", keel_export_weights, text(saved_.c_str(), {"", "/nowhere"}),
        text(weights_.c_str(), {"", "/proc/keel"}));
    row("keel_model_load_weights", keel_model_load_weights, model,
        text(weights_.c_str(), {"", "/nowhere", yaml_.c_str()}));

    row("keel_context_fail", keel_context_fail, own_context, text("enough"));
    remake();  // the one before is of no more use
  }

  std::set<std::string> functions;

 private:
  enum class Good { works, none };

  // A session with which every function works.
  void remake() {
    context_ = CContext(), model_ = CModel(), x_ = CArray(), y_ = CArray(), w_ = CArray(), v_ = CArray();
    batch_ = CBatch();
    EXPECT_KEEL(keel_context_create(settings_, context_.out()));
    x_ = c_array(context_, numbers_, {2, 2});
    y_ = c_array(context_, numbers_ + 4, {2, 3});
    w_ = c_array(context_, numbers_ + 10, {2});
    v_ = c_array(context_, weights_of_layer_, {3, 2});
    EXPECT_KEEL(keel_batch_create(context_, batch_.out()));
    EXPECT_KEEL(keel_model_create_mlp(context_, nullptr, widths_, 2, "relu", "mse", model_.out()));
    keel_array* gone = nullptr;
    EXPECT_KEEL(keel_array_create(context_, numbers_, KEEL_F32, KEEL_HOST, 2, shape_, nullptr, &gone));
    stale_ = gone;
    EXPECT_KEEL(keel_array_destroy(&gone));
  }

  template <class Handle>
  Slot<Handle*> handle(Handle* good) {
    std::vector<Handle*> bad = {nullptr};
    for (const void* each :
         {static_cast<const void*>(settings_), static_cast<const void*>(context_), static_cast<const void*>(x_),
          static_cast<const void*>(batch_), static_cast<const void*>(model_), stale_,
          static_cast<const void*>(numbers_), reinterpret_cast<const void*>(~0ULL)})
      if (each != static_cast<const void*>(good)) bad.push_back(static_cast<Handle*>(const_cast<void*>(each)));
    if constexpr (std::is_same_v<std::remove_const_t<Handle>, keel_array>)
      std::erase(bad, static_cast<Handle*>(x_.handle));  // another array, of another shape
    return {[=] { return good; }, bad};
  }
  // Where a function puts what it has made, which goes again.
  template <class Handle, keel_status (*destroy)(Handle**)>
  Slot<Handle**> made() {
    const auto home = std::make_shared<Owned<Handle, destroy>>();
    return {[=] {
              *home = Owned<Handle, destroy>();
              return home->out();
            },
            {nullptr}};
  }
  template <class Handle>
  Slot<Handle**> to_destroy(const std::function<keel_status(Handle**)>& make) {
    const auto home = std::make_shared<Handle*>(nullptr);
    return {[=] {
              if (*home == nullptr) { EXPECT_KEEL(make(home.get())); }
              return home.get();
            },
            {nullptr}};
  }
  Slot<keel_settings**> to_destroy(keel_status (*make)(keel_settings**)) {
    return to_destroy<keel_settings>(std::function<keel_status(keel_settings**)>(make));
  }

  // Each argument at each of its bad values, then some at a time, then none.
  template <Good good = Good::works, class... A>
  void row(const std::string& name, keel_status (*function)(A...), const Slot<std::type_identity_t<A>>&... slots) {
    functions.insert(name);
    const std::size_t bads[] = {slots.bad.size()...};
    std::vector<std::size_t> chosen(sizeof...(A), 0);  // 0: good; i: the i-th bad value
    const auto run = [&] {
      std::size_t at = 0;
      const auto value = [&](const auto& slot) {
        const std::size_t which = chosen[at++];
        return which == 0 ? slot.good() : slot.bad[which - 1];
      };
      const std::tuple<A...> arguments{value(slots)...};
      const keel_status status = std::apply(function, arguments);
      const bool is_good =
          good == Good::works && std::all_of(chosen.begin(), chosen.end(), [](std::size_t c) { return c == 0; });
      std::string which;
      for (const std::size_t c : chosen) which += concat(' ', c);
      ASSERT_EQ(status == KEEL_OK, is_good) << name << which << ": " << keel_last_error();
      if (is_good) return;
      const std::string said = keel_last_error();
      ASSERT_TRUE(said.starts_with(name + ": ") && said.size() > name.size() + 10) << said;
    };
    for (std::size_t i = 0; i < sizeof...(A); ++i) {
      for (chosen[i] = 0; chosen[i] < bads[i]; ++chosen[i]) run();
      run();
      chosen[i] = 0;
    }
    for (int times = 0; times < 20; ++times) {
      for (std::size_t i = 0; i < sizeof...(A); ++i)
        chosen[i] = (*draw_)() % 3 == 0 && bads[i] > 0 ? 1 + (*draw_)() % bads[i] : 0;
      run();
    }
    std::fill(chosen.begin(), chosen.end(), 0);
    run();
  }

  TemporaryFolder folder_;
  std::string yaml_ = folder_ / "run.yaml", saved_ = folder_ / "saved", weights_ = folder_ / "model.safetensors";
  float numbers_[16] = {0.1F, 0.2F, 0.3F, 0, 0, 0, 0, 0, 0, 0, 1, 2}, weights_of_layer_[6] = {};
  const char* name_ = nullptr;
  std::int64_t extents_[8] = {};
  std::int64_t shape_[2] = {2, 2}, dense_[2] = {2, 1}, widths_[2] = {2, 3}, negative_[2] = {2, -2},
               huge_[2] = {std::int64_t{1} << 60, std::int64_t{1} << 60};
  double number_ = 0;
  int whole_ = 0;
  std::int64_t count_ = 0;
  CSettings settings_ = c_settings({});
  CContext context_;
  CArray x_, y_, w_, v_;
  CBatch batch_;
  CTeam team_;
  CModel model_;
  const void* stale_ = nullptr;
  std::mt19937_64* draw_ = nullptr;
};

TEST(CBorder, EveryFunctionTellsWhatIsWrongAndGoesOn) {
  Border border;
  std::mt19937_64 draw(1);
  border.each_function(draw);
  const std::string header = read_text_file(concat(KEEL_SOURCE_DIR, "/capi/keel.h"));
  const std::regex declaration("\nkeel_status (keel_\\w+)\\(");
  std::set<std::string> declared;
  for (std::sregex_iterator at(header.begin(), header.end(), declaration), end; at != end; ++at)
    declared.insert((*at)[1]);
  EXPECT_EQ(border.functions, declared);
}

// A step that cannot be taken, of which the log is told.
void step_on_nothing(const CSettings& settings, keel_context** context_made = nullptr) {
  CContext context;
  EXPECT_KEEL(keel_context_create(settings, context.out()));
  if (context_made != nullptr) *context_made = context;
  const std::int64_t widths[] = {1, 1};
  CModel model;
  EXPECT_KEEL(keel_model_create_mlp(context, nullptr, widths, 2, "relu", "mse", model.out()));
  float x = std::numeric_limits<float>::infinity(), y = 0;
  int taken = 1;
  const CArray in = c_array(context, &x, {1, 1}), out = c_array(context, &y, {1, 1});
  EXPECT_KEEL(keel_train_step(model, in, out, 1, nullptr, nullptr, &taken));
  EXPECT_EQ(taken, 0);
  EXPECT_NE(keel_infer(model, out, nullptr), KEEL_OK);
}

struct Heard {
  std::vector<std::string> messages;
  keel_context* context = nullptr;
  keel_status of_a_call = KEEL_OK;
};
void hear(int level, const char* message, void* user) {
  auto& heard = *static_cast<Heard*>(user);
  heard.messages.push_back(concat(level, ' ', message));
  heard.of_a_call = keel_context_fail(heard.context, "from the log");
}

TEST(CBorder, PrintsNothingAndTellsOnlyTheLogFunction) {
  EXPECT_EQ(said_by([] { step_on_nothing(c_settings({{"threads", "1"}})); }), "");
  Heard heard;
  EXPECT_EQ(said_by([&] {
              const CSettings settings = c_settings({{"threads", "1"}});
              EXPECT_KEEL(keel_settings_log(settings, hear, &heard));
              step_on_nothing(settings, &heard.context);
            }),
            "");
  ASSERT_EQ(heard.messages.size(), 1u);
  EXPECT_TRUE(heard.messages[0].starts_with("1 step 1 was not taken: the gradient of layers.0.")) << heard.messages[0];
  EXPECT_EQ(heard.of_a_call, KEEL_ERROR_INPUT) << "a call in the midst of another one";
}

TEST(CBorder, ThreadsHaveTheirOwnContextsAndErrors) {
  EXPECT_EQ(keel_settings_destroy(nullptr), KEEL_ERROR_INPUT);
  const std::string mine = keel_last_error();
  std::thread other([&] {
    EXPECT_STREQ(keel_last_error(), "");
    step_on_nothing(c_settings({{"threads", "1"}}));
    EXPECT_TRUE(std::string(keel_last_error()).starts_with("keel_infer: "));
  });
  step_on_nothing(c_settings({{"threads", "2"}}));
  other.join();
  EXPECT_EQ(mine, "keel_settings_destroy: settings is NULL");
}

TEST(CBorder, SaysItsVersionAndWhatItsNumbersMean) {
  int major = -1, minor = -1, patch = -1;
  EXPECT_KEEL(keel_version(&major, &minor, &patch));
  EXPECT_EQ(concat(major, '.', minor, '.', patch), KEEL_PROJECT_VERSION);
  EXPECT_STREQ(keel_status_name(KEEL_OK), "KEEL_OK");
  EXPECT_STREQ(keel_status_name(KEEL_ERROR_HANDLE), "KEEL_ERROR_HANDLE");
  EXPECT_STREQ(keel_status_name(KEEL_ERROR_HANDLE + 1), "unknown status");
  EXPECT_STREQ(keel_status_name(-1), "unknown status");
}

TEST(CBorder, RefusesAnOptimizerThatEvaluatesTheLossItself) {
  const CSettings settings = c_settings({{"optimizer.type", "LBFGS"}});
  CContext context;
  EXPECT_KEEL(keel_context_create(settings, context.out()));
  const std::int64_t widths[] = {1, 1};
  CModel model;
  EXPECT_EQ(keel_model_create_mlp(context, settings, widths, 2, "relu", "mse", model.out()), KEEL_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(keel_last_error()).find("LBFGS evaluates the loss several times"), std::string::npos)
      << keel_last_error();
}

TEST(CBorder, TakesASectionAsAWhole) {
  CContext context;
  const CSettings settings = c_settings({{"optimizer.type", "Lyon"}, {"optimizer", "{type: SGD, momentum: 0.9}"}});
  EXPECT_KEEL(keel_context_create(settings, context.out()));
  EXPECT_KEEL(keel_settings_set(settings, "scheduler", "cosine"));
  CContext other;
  EXPECT_EQ(keel_context_create(settings, other.out()), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("is a section; write it as `scheduler: {"), std::string::npos)
      << keel_last_error();
}

TEST(CBorder, TellsAllThatIsWrongWithSettingsAtOnce) {
  const CSettings settings = c_settings({{"optimizer.type", "Lyon"}, {"clip", "-1"}, {"threads", "few"}});
  CContext context;
  EXPECT_EQ(keel_context_create(settings, context.out()), KEEL_ERROR_INPUT);
  const std::string said = keel_last_error();
  for (const char* part :
       {"settings, 'optimizer.type=Lyon'", "did you mean 'Lion'", "clip: expects", "threads: expects"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(keel_settings_set(settings, "optimizer.wait_decay", "1"), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("did you mean 'optimizer.weight_decay'"), std::string::npos);
  EXPECT_KEEL(keel_settings_set(settings, "optimizer.type", "Lion"));
  EXPECT_KEEL(keel_settings_set(settings, "clip", "1"));
  EXPECT_KEEL(keel_settings_set(settings, "threads", "1"));
  EXPECT_KEEL(keel_context_create(settings, context.out()));
}

}  // namespace
}  // namespace keel
