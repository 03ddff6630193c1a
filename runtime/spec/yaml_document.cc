#include "runtime/spec/yaml_document.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace trireme::spec {
namespace {

// Builds the tree. Refusals are thrown as yaml-cpp's own exception, the only way to stop its
// parser.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view text, YamlNode& root) : text_(text), root_(root) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    Attach(NewNode(YamlNode::Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "aliases (*name) are not supported; write the value out");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { RefuseAnchor(mark, 1); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    if (tag != "?" && tag != "!") RefuseTag(mark, tag);
    YamlNode node = NewNode(YamlNode::Kind::kScalar, mark);
    node.quoted = tag == "!";
    if (node.quoted) RefuseOpenQuote(mark);
    node.scalar = value;
    Attach(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  // Of the innermost map or list that is not closed yet; 0: all are.
  int OpenLine() const { return open_.empty() ? 0 : open_.back().line; }

 private:
  static YamlNode NewNode(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    return node;
  }
  static void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor == YAML::NullAnchor) return;
    throw YAML::ParserException(mark, "anchors (&name) are not supported; write the value out");
  }
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    throw YAML::ParserException(
        mark, absl::StrCat("the tag ", Printable(tag), " is not supported; remove it"));
  }
  // yaml-cpp takes the end of the file for the end of a quoted text; a file cut short must not
  // pass.
  void RefuseOpenQuote(const YAML::Mark& mark) const {
    size_t at = static_cast<size_t>(mark.pos);
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'')) return;  // a block scalar
    const char quote = text_[at];
    for (++at; at < text_.size(); ++at) {
      const bool doubled = quote == '\'' && at + 1 < text_.size() && text_[at + 1] == quote;
      if (text_[at] == quote && !doubled) return;
      if ((text_[at] == quote && doubled) || (text_[at] == '\\' && quote == '"')) ++at;
    }
    throw YAML::ParserException(mark, "the quote that opens here is never closed");
  }
  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    RefuseAnchor(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) RefuseTag(mark, tag);
    if (AwaitsKey()) throw YAML::ParserException(mark, "a key must be a plain name");
    if (open_.size() >= kMaxYamlDepth) {
      throw YAML::ParserException(
          mark, absl::StrCat("nested deeper than ", kMaxYamlDepth, " levels; a job needs four"));
    }
    open_.push_back(NewNode(kind, mark));
  }
  void Close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    Attach(std::move(node));
  }
  bool AwaitsKey() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap &&
           open_.back().keys.size() == open_.back().children.size();
  }
  void Attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    if (!AwaitsKey()) {
      parent.children.push_back(std::move(node));
      return;
    }
    if (node.kind != YamlNode::Kind::kScalar || node.scalar.empty()) {
      YAML::Mark mark;
      mark.line = node.line - 1;
      throw YAML::ParserException(mark, "an empty key; write \"name: value\"");
    }
    parent.keys.push_back(std::move(node.scalar));
    parent.key_lines.push_back(node.line);
  }

  absl::string_view text_;
  YamlNode& root_;
  std::vector<YamlNode> open_;  // maps and lists not yet closed, outermost first
};

// What stopped yaml-cpp, in the words of who wrote the file, with the fix. It notices what is never
// closed at the end of the file: what counts is where it opens (`open_line`; 0: not known).
YamlError Explained(const YAML::Exception& exception, int open_line) {
  const int line = exception.mark.is_null() ? 0 : exception.mark.line + 1;
  const std::string& said = exception.msg;
  if (said == YAML::ErrorMsg::END_OF_MAP_FLOW || said == YAML::ErrorMsg::END_OF_SEQ_FLOW) {
    const bool list = said == YAML::ErrorMsg::END_OF_SEQ_FLOW;
    return {
        open_line == 0 ? line : open_line,
        absl::StrCat("the ", list ? "[" : "{", " that opens here is never closed, or a comma is ",
                     "missing after a value; add the ", list ? "]" : "}", " or the comma")};
  }
  if (said == YAML::ErrorMsg::END_OF_MAP || said == YAML::ErrorMsg::END_OF_SEQ) {
    return {line,
            "this line is not indented as the lines of its section are; line up the names of a "
            "section, and the dashes of a list, with spaces"};
  }
  if (said == YAML::ErrorMsg::MAP_VALUE) {
    return {line,
            "a ':' where no name can be; line up the names of a section, see that the line above "
            "has its ':', and put a text that holds ': ' in quotes"};
  }
  if (said == YAML::ErrorMsg::FLOW_END) {
    return {line, "a } or ] that closes nothing of its kind; each { takes a }, each [ a ]"};
  }
  if (said == YAML::ErrorMsg::BLOCK_ENTRY) {
    return {line, "the entry of a list (- value) has to begin a line of its own"};
  }
  return {line, said};
}

// What yaml-cpp would take silently or report badly, found before it sees the text.
bool CheckBytes(absl::string_view text, YamlError& error) {
  if (text.size() > kMaxYamlBytes) {
    error = {0, absl::StrCat("has ", text.size(), " bytes, more than the limit of ", kMaxYamlBytes,
                             "; a job file takes a few KiB, is this the right file?")};
    return false;
  }
  size_t bad = 0;
  const bool utf8 = IsUtf8(text, bad);
  int line = 1;
  bool indentation = true;
  for (size_t i = 0; i < (utf8 ? text.size() : bad); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\t' && indentation) {
      error = {line, "a tab in the indentation; use spaces"};
      return false;
    }
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      error = {line, absl::StrFormat("the control character 0x%02x; write \"\\x%02x\" in quotes if "
                                     "it is meant",
                                     c, c)};
      return false;
    }
    if (c == '\n') {
      ++line;
      indentation = true;
    } else if (c != ' ') {
      indentation = false;
    }
  }
  if (utf8) return true;
  error = {line, absl::StrFormat("the byte 0x%02x is not UTF-8; save the file as UTF-8",
                                 static_cast<unsigned char>(text[bad]))};
  return false;
}

}  // namespace

bool IsUtf8(absl::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    offset = i;
    const unsigned char lead = byte(i);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    if (length >= 3) {
      // Overlong forms, surrogates and code points beyond U+10FFFF.
      const unsigned char next = byte(i + 1);
      if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next >= 0xa0) ||
          (lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next >= 0x90)) {
        return false;
      }
    }
    i += length;
  }
  return true;
}

std::string Printable(absl::string_view text) {
  constexpr size_t kMaxBytes = 60;
  size_t limit = text.size();
  if (limit > kMaxBytes) {
    limit = kMaxBytes;
    while (limit > kMaxBytes - 4 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) {
      --limit;
    }
  }
  size_t bad = 0;
  const bool utf8 = IsUtf8(text.substr(0, limit), bad);
  std::string out;
  for (size_t i = 0; i < limit; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8)) {
      absl::StrAppendFormat(&out, "\\x%02x", c);
    } else {
      out += text[i];
    }
  }
  if (limit < text.size()) out += "...";
  return out;
}

bool ParseYaml(const std::string& text, YamlNode& root, YamlError& error) {
  if (!CheckBytes(text, error)) return false;
  root = YamlNode();
  const std::string body = absl::StartsWith(text, "\xef\xbb\xbf") ? text.substr(3) : text;
  TreeBuilder builder(body, root);
  YamlNode second;
  TreeBuilder second_builder(body, second);
  try {
    std::istringstream stream(body);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return true;
    if (parser.HandleNextDocument(second_builder) && second.kind != YamlNode::Kind::kNull) {
      error = {second.line, "a second document (after ---); a job file holds one"};
      return false;
    }
  } catch (const YAML::Exception& exception) {
    error = Explained(exception, std::max(builder.OpenLine(), second_builder.OpenLine()));
    return false;
  } catch (const std::exception& exception) {
    error = {0, absl::StrCat("cannot be parsed as YAML: ", exception.what())};
    return false;
  }
  return true;
}

}  // namespace trireme::spec
