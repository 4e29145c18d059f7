#include "keel/dist/lab/report.h"

#include "cli/comm_predict.h"
#include "tests/fuzz/target.h"

bool keel::fuzz::report(std::string_view bytes) {
  return accepts([&] {
    const lab::Report read = lab::parse_report(bytes, "fuzz.json");
    const std::string written = lab::to_json(read);
    require(lab::to_json(lab::parse_report(written, "written.json")) == written, "a report survives writing");
    lab::to_csv(read);
    cli::prediction_text({read, read}, {2, 24, 1024}, 4);
  });
}
