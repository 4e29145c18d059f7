#pragma once
// For scripts/mutate: changes of operators and constants that one program holds all of, and of which the environment
// chooses one: KEEL_CHANGE is its number. An operator is written twice, with an object of ours between, so that it
// keeps its place among the others: `a + b * c` becomes `a + between<7>(...) + b * c`.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <type_traits>

namespace keel_change {

inline int chosen() {
  const char* text = std::getenv("KEEL_CHANGE");
  return text != nullptr ? std::atoi(text) : -1;
}

// A byte for each change in the file KEEL_REACHED, which a run sets where it comes by, so do the processes that it
// starts.
inline volatile char* reached() {
  const char* path = std::getenv("KEEL_REACHED");
  const int file = path != nullptr ? ::open(path, O_RDWR) : -1;
  if (file < 0) return nullptr;
  void* bytes = ::mmap(nullptr, static_cast<std::size_t>(::lseek(file, 0, SEEK_END)), PROT_READ | PROT_WRITE,
                       MAP_SHARED, file, 0);
  ::close(file);
  return bytes == MAP_FAILED ? nullptr : static_cast<char*>(bytes);
}

inline const int kChosen = chosen();
inline volatile char* const kReached = reached();

inline bool on(int change) {
  if (kReached != nullptr) kReached[change] = 1;
  return change == kChosen;
}

// What the operators before and after do. Where the second has no meaning for these types, the first is done.
#define KEEL_BETWEEN(Name, first, second)                                        \
  template <int kChange>                                                         \
  struct Name {};                                                                \
  template <int kChange, class A>                                                \
  struct Name##Left {                                                            \
    const A& left;                                                               \
  };                                                                             \
  template <class A, int kChange>                                                \
  Name##Left<kChange, A> operator first(const A& left, Name<kChange>) {          \
    return {left};                                                               \
  }                                                                              \
  template <int kChange, class A, class B>                                       \
  auto operator first(const Name##Left<kChange, A>& before, const B& right) {    \
    using Result = std::decay_t<decltype(before.left first right)>;              \
    if constexpr (requires { static_cast<Result>(before.left second right); }) { \
      if (on(kChange)) return static_cast<Result>(before.left second right);     \
    }                                                                            \
    return static_cast<Result>(before.left first right);                         \
  }
KEEL_BETWEEN(EqualNot, ==, !=)
KEEL_BETWEEN(NotEqual, !=, ==)
KEEL_BETWEEN(LessOr, <, <=)
KEEL_BETWEEN(OrLess, <=, <)
KEEL_BETWEEN(MoreOr, >, >=)
KEEL_BETWEEN(OrMore, >=, >)
KEEL_BETWEEN(PlusMinus, +, -)
KEEL_BETWEEN(MinusPlus, -, +)
KEEL_BETWEEN(TimesOver, *, /)
KEEL_BETWEEN(OverTimes, /, *)
KEEL_BETWEEN(RestOver, %, /)
#undef KEEL_BETWEEN

// `a += b` becomes `a += Name<7>() += b`: the right one comes first.
#define KEEL_ASSIGNING(Name, first, second)                               \
  template <int kChange>                                                  \
  struct Name {};                                                         \
  template <int kChange, class B>                                         \
  struct Name##Right {                                                    \
    const B& right;                                                       \
  };                                                                      \
  template <int kChange, class B>                                         \
  Name##Right<kChange, B> operator first(Name<kChange>, const B& right) { \
    return {right};                                                       \
  }                                                                       \
  template <class A, int kChange, class B>                                \
  A& operator first(A& left, const Name##Right<kChange, B>& after) {      \
    if constexpr (requires { left second after.right; }) {                \
      if (on(kChange)) {                                                  \
        left second after.right;                                          \
        return left;                                                      \
      }                                                                   \
    }                                                                     \
    left first after.right;                                               \
    return left;                                                          \
  }
KEEL_ASSIGNING(AddTake, +=, -=)
KEEL_ASSIGNING(TakeAdd, -=, +=)
KEEL_ASSIGNING(ScaleDivide, *=, /=)
KEEL_ASSIGNING(DivideScale, /=, *=)
KEEL_ASSIGNING(SetKeep, |=, &=)
KEEL_ASSIGNING(KeepSet, &=, |=)
#undef KEEL_ASSIGNING

// `!x` becomes `Not<7>() ->* x`, and `++x` becomes `Step<7, 1>() ->* x`: what binds closer than it stays with x.
template <int kChange>
struct Not {};
template <int kChange, class A>
bool operator->*(Not<kChange>, const A& value) {
  return on(kChange) ? static_cast<bool>(value) : !value;
}
template <int kChange, int kStep>
struct Step {};
template <int kChange, int kStep, class A>
A& operator->*(Step<kChange, kStep>, A& value) {
  if constexpr (requires { --value; }) {
    if (on(kChange) == (kStep > 0)) return --value;
  }
  return ++value;
}

// `a && b` becomes `a && holds<7, true>() || goes_on<7, true>() && b`, and so does `a || b` with false. Only where a
// holds is the first called, and what it has seen decides whether the second leads to b.
inline thread_local bool left_holds = false;
template <int kChange, bool kBoth>
bool holds() {
  const bool is_either = on(kChange) == kBoth;
  left_holds = !is_either;
  return is_either;
}
template <int kChange, bool kBoth>
bool goes_on() {
  const bool is_either = on(kChange) == kBoth, held = left_holds;
  left_holds = false;
  return is_either || held;
}

// std::min and std::max.
template <int kChange, bool kLeast>
struct Extreme {
  template <class T, class... More>
  static const T& of(const T& a, const T& b, More... more) {
    return on(kChange) == kLeast ? std::max<T>(a, b, more...) : std::min<T>(a, b, more...);
  }
  template <class T>
  static T of(std::initializer_list<T> values) {
    return on(kChange) == kLeast ? std::max<T>(values) : std::min<T>(values);
  }
};

}  // namespace keel_change
