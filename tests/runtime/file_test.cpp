#include "keel/runtime/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/temporary_folder.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TemporaryFolder;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Every file larger than `bytes` fails to grow while this lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit old_ = {};
  void (*signal_)(int);
};

TEST(AtomicFile, AppearsUnderItsNameOnlyAtCommit) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  write_text_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new ");
    file.write("text");
    EXPECT_EQ(read_text_file(path), "old");
    EXPECT_EQ(names_in(folder.path()).size(), 2u);
    EXPECT_EQ(file.size(), 8u);
    file.commit();
    EXPECT_EQ(read_text_file(path), "new text");
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.txt"});
}

TEST(AtomicFile, DisappearsWithoutCommit) {
  const TemporaryFolder folder;
  { AtomicFile(folder / "a.txt").write("text"); }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFile, KeepsTheOrderOfSmallAndLargeWritesAndRewrites) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  std::string expected;
  for (const std::size_t count : {1u, 100u, 65535u, 65536u, 0u, 200000u, 3u}) {
    const std::string piece(count, static_cast<char>('a' + expected.size() % 26));
    file.write(piece);
    expected += piece;
  }
  file.rewrite(2, std::as_bytes(std::span("HEAD", 4)));
  file.write("end");
  expected.replace(2, 4, "HEAD");
  EXPECT_FALSE(error_of([&] { file.rewrite(file.size() - 1, std::as_bytes(std::span("xy", 2))); }).empty());
  file.commit();
  EXPECT_EQ(read_text_file(folder / "a"), expected + "end");
  EXPECT_FALSE(error_of([&] { file.write("more"); }).empty());
  EXPECT_FALSE(error_of([&] { file.commit(); }).empty());
}

TEST(AtomicFile, LeavesTheOldFileIntactWhenTheDiskRefuses) {
  const TemporaryFolder folder;
  const std::string path = folder / "model";
  write_text_file(path, "old");
  for (const bool large : {false, true}) {
    std::string message;
    {
      const FileSizeLimit limit(1000);
      message = error_of([&] {
        AtomicFile file(path);
        file.write(std::string(large ? 100000 : 2000, 'x'));
        file.commit();
      });
    }
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("File too large"), std::string::npos) << message;
    EXPECT_EQ(read_text_file(path), "old");
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"model"});
  }
}

TEST(AtomicFile, NamesPathAndReasonWhenItCannotBeCreated) {
  const TemporaryFolder folder;
  write_text_file(folder / "plain", "");
  const std::pair<std::string, std::string> cases[] = {{folder / "missing/a", "does not exist"},
                                                       {folder / "plain/a", "Not a directory"},
                                                       {folder.path(), "it is a folder"},
                                                       {folder / "missing/", "names a folder"}};
  for (const auto& [path, reason] : cases) {
    try {
      AtomicFile file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      EXPECT_NE(std::string(error.what()).find("'" + path + "'"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(error_of([] { AtomicFile file(""); }).empty());
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const TemporaryFolder folder;
  write_text_file(folder / "a", "hello");
  MappedFile file(folder / "a");
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.text(), "hello");
  EXPECT_EQ(moved.path(), folder / "a");
  EXPECT_EQ(file.size(), 0u);
  file = std::move(moved);
  EXPECT_EQ(file.text(), "hello");
  EXPECT_FALSE(error_of([&] { file.writable(); }).empty());
}

TEST(MappedFile, OfAnEmptyFileIsEmpty) {
  const TemporaryFolder folder;
  write_text_file(folder / "a", "");
  EXPECT_EQ(MappedFile(folder / "a").bytes().size(), 0u);
  EXPECT_EQ(read_text_file(folder / "a"), "");
}

TEST(MappedFile, KeepsWritesToACopyOnWriteMappingToItself) {
  const TemporaryFolder folder;
  write_text_file(folder / "a", "hello");
  const MappedFile file(folder / "a", Mapping::copy_on_write);
  file.writable()[0] = std::byte{'J'};
  EXPECT_EQ(file.text(), "Jello");
  EXPECT_EQ(read_text_file(folder / "a"), "hello");
}

TEST(MappedFile, RefusesWhatIsNotAFileAndNamesIt) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { MappedFile file(folder / "none"); }).find("No such file"), std::string::npos);
  EXPECT_NE(error_of([&] { MappedFile file(folder.path()); }).find("is a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { MappedFile file("/dev/null"); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { read_text_file(folder / "none"); }).find(folder / "none"), std::string::npos);
  EXPECT_EQ(error_of([] { read_text_file("/dev/zero"); }), "cannot read '/dev/zero': it is not a regular file");
  EXPECT_EQ(error_of([] { read_text("/dev/zero"); }),
            "cannot read '/dev/zero': it is no file, and has more than 67108864 bytes");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_text_file(folder / "fifo"); }),
            concat("cannot read '", folder / "fifo", "': it is not a regular file"));
  std::thread writer([&] { std::ofstream(folder / "fifo") << "through a pipe"; });
  EXPECT_EQ(read_text(folder / "fifo"), "through a pipe");
  writer.join();
  EXPECT_FALSE(error_of([&] { read_text_file(folder.path()); }).empty());
}

TEST(AtomicFolder, AppearsWithItsFilesAtCommit) {
  const TemporaryFolder folder;
  {
    AtomicFolder saved(folder / "step-10/");
    write_text_file(saved.temporary() + "/a", "1");
    fs::create_directory(saved.temporary() + "/inner");
    write_text_file(saved.temporary() + "/inner/b", "2");
    ASSERT_EQ(names_in(folder.path()).size(), 1u);
    const std::string unfinished = names_in(folder.path()).front();
    EXPECT_EQ(unfinished.size(), std::string("step-10..tmp").size() + 16);
    EXPECT_EQ(AtomicFolder::target_of(unfinished), "step-10");
    saved.commit();
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-10"});
  EXPECT_EQ(read_text_file(folder / "step-10/inner/b"), "2");
}

TEST(AtomicFolder, DisappearsWithoutCommitAndClearsWhatAKilledProgramLeft) {
  const TemporaryFolder folder;
  const std::vector<std::string> others = {"c", "c.0123456789abcdef.old", "c.0123456789abcdeg.tmp", "cc.tmp", "d.tmp"};
  for (const std::string& other : others) fs::create_directory(folder / other);
  for (const char* left : {"c.tmp", "c.0123456789abcdef.tmp"}) {
    fs::create_directory(folder / left);
    write_text_file(folder / left + "/stale", "");
  }
  {
    AtomicFolder saved(folder / "c", IfExists::replace);
    EXPECT_TRUE(names_in(saved.temporary()).empty());
    write_text_file(saved.temporary() + "/a", "1");
  }
  EXPECT_EQ(names_in(folder.path()), others);
}

TEST(AtomicFolder, RefusesOrReplacesAnExistingOne) {
  const TemporaryFolder folder;
  const auto save = [&](IfExists if_exists, const std::string& text) {
    AtomicFolder saved(folder / "c", if_exists);
    write_text_file(saved.temporary() + "/a", text);
    saved.commit();
  };
  save(IfExists::refuse, "first");
  EXPECT_NE(error_of([&] { save(IfExists::refuse, "second"); }).find("exists already"), std::string::npos);
  EXPECT_EQ(read_text_file(folder / "c/a"), "first");
  save(IfExists::replace, "third");
  EXPECT_EQ(read_text_file(folder / "c/a"), "third");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"c"});
}

TEST(AtomicFolder, RefusesATargetThatAppearedMeanwhile) {
  const TemporaryFolder folder;
  {
    AtomicFolder saved(folder / "c");
    fs::create_directory(folder / "c");
    EXPECT_NE(error_of([&] { saved.commit(); }).find("File exists"), std::string::npos);
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"c"});
  EXPECT_NE(error_of([&] { AtomicFolder saved(folder / "none/c"); }).find("does not exist"), std::string::npos);
}

TEST(AtomicFiles, OfKilledProgramsAreRemovedAndNothingElse) {
  const TemporaryFolder folder;
  for (const char* name : {".c.yaml.17-0.tmp", ".a.b.4000000-12.tmp"}) write_text_file(folder / name, "half");
  const std::vector<std::string> others = {"c.yaml.17-0.tmp", ".c.yaml.17-0", ".c.yaml.tmp", ".tmp",
                                           "..tmp",           ".17-0.tmp"};
  for (const std::string& name : others) write_text_file(folder / name, "mine");
  remove_unfinished_files(folder.path());
  EXPECT_EQ(names_in(folder.path()).size(), others.size());
  for (const std::string& name : others) EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  remove_unfinished_files(folder / "none");
}

TEST(InputFile, GivesTheBytesOfAnyPlaceAndAnErrorWhereTheyAreGone) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>('a' + i % 23);
  write_text_file(folder / "f", text);
  const InputFile file(folder / "f");
  EXPECT_EQ(file.size(), text.size());
  std::string part(5'000, ' ');
  for (const std::size_t offset : {0, 1, 77'777, 95'000}) {
    file.read(offset, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, text.substr(offset, part.size()));
  }
  const auto read_at = [&](std::size_t offset) {
    return error_of([&] { file.read(offset, std::as_writable_bytes(std::span(part))); });
  };
  EXPECT_EQ(read_at(95'001),
            concat("cannot read '", folder / "f", "': it has 100000 bytes, and one at 100000 was wanted"));
  std::filesystem::resize_file(folder / "f", 4'000);
  EXPECT_EQ(read_at(0),
            concat("cannot read '", folder / "f", "': it has been cut short to 4000 bytes or fewer; it had 100000"));
  EXPECT_NE(read_at(50'000).find("cut short"), std::string::npos);
  EXPECT_NE(error_of([&] { InputFile f(folder.path()); }).find("it is a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { InputFile f("/dev/zero"); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { InputFile f(folder / "none"); }).find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace keel
