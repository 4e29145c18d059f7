#include "keel/tokenizers/byte_characters.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "keel/runtime/utf8.h"

namespace keel {

void ByteCharacters::append(std::string_view bytes, std::string& out) {
  const std::size_t size = out.size();
  out.resize(size + 2 * bytes.size());
  const char* end = write(bytes, out.data() + size);
  out.resize(static_cast<std::size_t>(end - out.data()));
}

bool ByteCharacters::append_bytes(std::string_view text, std::string& out) {
  const std::size_t size = out.size();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    const std::int16_t byte = c.bytes == 0 ? kNoByte : ByteCharacters::byte(c.value);
    if (byte == kNoByte) {
      out.resize(size);
      return false;
    }
    out += static_cast<char>(byte);
    at += c.bytes;
  }
  return true;
}

}  // namespace keel
