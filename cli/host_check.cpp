#include "host_check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "process.h"

namespace keel::cli {
namespace {

// In a group of its own: what it starts ends with it.
pid_t start_silently(const LaunchPlan& plan) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const auto& [name, value] : plan.environment) ::setenv(name.c_str(), value.c_str(), 1);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, file);
  const sigset_t mask = mask_for_exec(false);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::vector<char*> words;
  for (const std::string& word : plan.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  ::_exit(127);
}

}  // namespace

HostCheck::HostCheck(const std::vector<std::string>& hosts, const Machine& machine, std::chrono::milliseconds deadline)
    : end_(std::chrono::steady_clock::now() + deadline) {
  for (const std::string& host : hosts) {
    LaunchWish question;
    question.hosts = {{host, 1}};
    question.command = {"true"};
    open_.push_back({host, start_silently(plan_launch(question, machine))});
  }
}

HostCheck::~HostCheck() {
  for (const Question& question : open_) {
    if (question.process <= 0) continue;
    ::kill(-question.process, SIGKILL);
    ::kill(question.process, SIGKILL);  // where it has no group yet
    ::waitpid(question.process, nullptr, 0);
  }
}

bool HostCheck::is_over() {
  const bool is_late = std::chrono::steady_clock::now() >= end_;
  std::erase_if(open_, [&](const Question& question) {
    int status = 1;
    if (question.process > 0 && ::waitpid(question.process, &status, WNOHANG) == 0) {
      if (!is_late) return false;
      ::kill(-question.process, SIGKILL);
      ::kill(question.process, SIGKILL);
      ::waitpid(question.process, nullptr, 0);
      status = 1;
    }
    if (status != 0) silent_.push_back(question.host);
    return true;
  });
  return open_.empty();
}

void HostCheck::wait() {
  while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace keel::cli
