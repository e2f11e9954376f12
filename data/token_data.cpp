#include "data/token_data.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "data/byte_vocabulary.h"
#include "data/documents.h"
#include "reference/fnv1a.h"

namespace attnres {

void TokenData::append(std::shared_ptr<const void> owner, const TokenSpan& tokens) {
  Piece piece{std::move(owner), tokens, size_};
  if (piece.size() == 0) return;
  size_ += piece.size();
  pieces_.push_back(std::move(piece));
}

void TokenData::append(const std::shared_ptr<const TokenShard>& shard) {
  append(shard, shard->tokens());
}

void TokenData::append(std::vector<std::uint16_t> tokens) {
  auto owner = std::make_shared<std::vector<std::uint16_t>>(std::move(tokens));
  append(owner, std::span<const std::uint16_t>(*owner));
}

const TokenData::Piece& TokenData::piece_of(std::size_t i) const {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), i,
                                      [](std::size_t x, const Piece& p) { return x < p.first; });
  return *std::prev(after);
}

std::int32_t TokenData::operator[](std::size_t i) const {
  const Piece& piece = piece_of(i);
  return std::visit([&](auto ids) { return std::int32_t(ids[i - piece.first]); }, piece.tokens);
}

void TokenData::copy(std::size_t first, std::size_t count, std::int32_t* out) const {
  while (count > 0) {
    const Piece& piece = piece_of(first);
    const std::size_t begin = first - piece.first;
    const std::size_t here = std::min(count, piece.size() - begin);
    out = std::visit([&](auto ids) { return std::copy_n(ids.data() + begin, here, out); },
                     piece.tokens);
    first += here;
    count -= here;
  }
}

TokenData TokenData::part(std::size_t first, std::size_t count) const {
  TokenData result;
  for (const auto& piece : pieces_) {
    const std::size_t begin = std::max(first, piece.first);
    const std::size_t end = std::min(first + count, piece.first + piece.size());
    if (begin >= end) continue;
    const auto part_of = [&](auto ids) -> TokenSpan {
      return ids.subspan(begin - piece.first, end - begin);
    };
    result.append(piece.owner, std::visit(part_of, piece.tokens));
  }
  return result;
}

std::uint64_t TokenData::hash() const {
  Fnv1a hash;
  const auto add = [&](auto ids) {
    for (const auto id : ids)
      for (std::size_t byte = 0; byte < sizeof id; ++byte) hash.add((id >> (8 * byte)) & 255u);
  };
  for (const auto& piece : pieces_) std::visit(add, piece.tokens);
  return hash.value();
}

namespace {

std::string read_text(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    throw std::runtime_error(path.string() + ": is a folder; name a text file or a token shard");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": no such text or token file");
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) throw std::runtime_error(path.string() + ": is empty");
  return text;
}

// One document's tokens, opened by the end-of-document token as in llm.c's shards.
void append_document(std::string_view text, TokenData& data) {
  if (text.empty()) return;
  std::vector<std::uint16_t> tokens = {std::uint16_t(ByteVocabulary::kEndOfDocument)};
  for (const unsigned char byte : text) tokens.push_back(byte);
  data.append(std::move(tokens));
}

void append_text(const std::filesystem::path& path, TokenData& data) {
  const std::string text = read_text(path);
  std::string_view rest = text;
  for (DocumentEnd end; (end = find_document_end(rest, 0, true)).size > 0;) {
    append_document(rest.substr(0, end.position), data);
    rest.remove_prefix(end.position + end.size);
  }
  append_document(rest, data);
}

DataSplit load_all(const std::vector<std::filesystem::path>& files, std::int32_t vocabulary) {
  DataSplit data;
  if (files.empty()) throw std::runtime_error("no data file was named");
  const bool shards = is_token_shard(files.front());
  for (const auto& path : files) {
    if (is_token_shard(path) != shards)
      throw std::runtime_error(path.string() + ": text and token shards cannot be mixed");
    if (shards)
      data.train.append(std::make_shared<TokenShard>(path, vocabulary));
    else
      append_text(path, data.train);
  }
  data.bytes = !shards;
  data.vocabulary = shards ? vocabulary : ByteVocabulary::kSize;
  return data;
}

// Where the validation tokens begin: near nine tenths, at the kindest boundary there is.
std::size_t cut_point(const TokenData& data, bool bytes) {
  const std::size_t target = data.size() * 9 / 10;
  if (!bytes) return target;
  const std::size_t reach = data.size() / 50;
  const auto nearest = [&](auto is_boundary) {
    for (std::size_t d = 0; d <= reach; ++d)
      for (const std::size_t at : {target - std::min(d, target - 1), target + d})
        if (at > 1 && at + 1 < data.size() && is_boundary(at)) return at;
    return std::size_t(0);
  };
  if (const auto at =
          nearest([&](std::size_t i) { return data[i] == ByteVocabulary::kEndOfDocument; }))
    return at;
  if (const auto at = nearest([&](std::size_t i) {
        return data[i - 1] == '\n' && data[i - 2] == '\n' && data[i] != '\n';
      }))
    return at;
  return target;
}

}  // namespace

DataSplit load_data(const std::vector<std::filesystem::path>& train,
                    const std::vector<std::filesystem::path>& validation,
                    std::int32_t shard_vocabulary) {
  DataSplit data = load_all(train, shard_vocabulary);
  if (!validation.empty()) {
    DataSplit held_out = load_all(validation, shard_vocabulary);
    if (held_out.bytes != data.bytes)
      throw std::runtime_error("training and validation data must both be text or both be shards");
    data.validation = held_out.train;
    return data;
  }
  const TokenData all = data.train;
  if (all.size() < 20)
    throw std::runtime_error(train.front().string() + ": has " + std::to_string(all.size()) +
                             " tokens; at least 20 are needed to hold a tenth out");
  const std::size_t cut = cut_point(all, data.bytes);
  data.train = all.part(0, cut);
  data.validation = all.part(cut, all.size() - cut);
  return data;
}

DataSplit load_evaluation_data(const std::vector<std::filesystem::path>& files,
                               std::int32_t shard_vocabulary) {
  DataSplit data = load_all(files, shard_vocabulary);
  data.validation = data.train;
  return data;
}

}  // namespace attnres
