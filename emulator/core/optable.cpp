#include "optable.hpp"

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace flymono {
namespace {

constexpr std::uint8_t gfx942 = 1 << static_cast<int>(Arch::gfx942);
constexpr std::uint8_t gfx950 = 1 << static_cast<int>(Arch::gfx950);
constexpr std::uint8_t both = gfx942 | gfx950;

struct TypeName {
  std::string_view name;
  Type type;
  std::uint8_t dwords;
};
constexpr TypeName kTypes[] = {
    {"b16", Type::int16, 1},      {"u16", Type::int16, 1},       {"i16", Type::int16, 1},
    {"f16", Type::f16, 1},        {"bf16", Type::bf16, 1},       {"b32", Type::int32, 1},
    {"u32", Type::int32, 1},      {"i32", Type::int32, 1},       {"f32", Type::f32, 1},
    {"pi16", Type::pair16, 1},    {"pf16", Type::pair_f16, 1},   {"pbf16", Type::pair_bf16, 1},
    {"pk32", Type::pair32, 2},    {"b64", Type::uint64, 2},      {"u64", Type::uint64, 2},
    {"i64", Type::int64, 2},      {"f64", Type::f64, 2},         {"b96", Type::wide, 3},
    {"b128", Type::wide, 4},      {"b192", Type::wide, 6},       {"b256", Type::wide, 8},
    {"b512", Type::wide, 16},     {"b1024", Type::wide, 32},
};

[[noreturn]] void bad(std::string_view pattern, std::string_view token) {
  throw std::logic_error("optable.inc: \"" + std::string(token) + "\" in \"" + std::string(pattern) + "\"");
}

Slot register_slot(std::string_view pattern, std::string_view token) {
  Slot slot{Role::reg};
  std::string_view name = token;
  if (token.size() > 2 && token[1] == ':') {
    slot.bank = token[0] == 's' ? Bank::scalar : token[0] == 'v' ? Bank::vector : Bank::acc;
    name.remove_prefix(2);
  }
  for (const TypeName& known : kTypes)
    if (known.name == name) {
      slot.type = known.type;
      slot.dwords = known.dwords;
      return slot;
    }
  bad(pattern, token);
}

bool address_token(Row& row, std::string_view token) {
  if (token == "addr") row.address = Address::ds;
  else if (token == "addr2") row.address = Address::ds_pair;
  else if (token == "base") row.address = Address::smem;
  else if (token == "base4") row.address = Address::smem_buffer;
  else if (token == "buf") row.address = Address::buffer;
  else if (token == "ptr") row.address = Address::pointer;
  else return token == "none";
  return true;
}

bool immediate_token(Row& row, std::string_view token) {
  if (token == "k") row.imm = Imm::signed16;
  else if (token == "u") row.imm = Imm::unsigned16;
  else if (token == "rel") row.imm = Imm::branch;
  else if (token == "n") row.imm = Imm::field8;
  else return false;
  return true;
}

Slot slot_of(std::string_view pattern, std::string_view token) {
  if (token == "mask") return {Role::mask, Type::uint64, Bank::scalar, 2};
  if (token == "d") return {Role::tied};
  if (token == "K") return {Role::literal, Type::f32, Bank::any, 1};
  return register_slot(pattern, token);
}

void destination_token(Row& row, std::string_view pattern, std::string_view token) {
  if (token == "-") return;
  if (token == "swap") row.swap = true;
  else (row.dst.role == Role::none ? row.dst : row.dst2) = slot_of(pattern, token);
}

void source_token(Row& row, std::string_view pattern, std::string_view token) {
  if (immediate_token(row, token) || address_token(row, token)) return;
  if (row.sources == 4) bad(pattern, token);
  row.src[row.sources++] = slot_of(pattern, token);
}

Row parse(Family family, unsigned number, Op op, std::string_view pattern, std::uint8_t archs) {
  Row row;
  row.op = op;
  row.family = family;
  row.number = static_cast<std::uint16_t>(number);
  row.archs = archs;
  bool sources = false;
  for (std::string_view rest = pattern; !rest.empty();) {
    const auto space = rest.find(' ');
    const std::string_view token = rest.substr(0, space);
    rest = space == rest.npos ? std::string_view{} : rest.substr(space + 1);
    if (token == "=" || token == "?=") {
      sources = true;
      row.returns_if_sc0 = token == "?=";
    } else if (sources) {
      source_token(row, pattern, token);
    } else {
      destination_token(row, pattern, token);
    }
  }
  return row;
}

class Table {
 public:
  Table() {
#define FLYMONO_ROW(family, number, op, pattern, archs) \
  rows_.push_back(parse(Family::family, number, Op::op, pattern, archs));
#include "optable.inc"
#undef FLYMONO_ROW
    for (auto& family : by_number_) family.assign(1024, nullptr);
    by_op_.fill(nullptr);
    for (const Row& row : rows_) index(row);
  }

  const Row* find(Family family, unsigned number) const {
    return number < 1024 ? by_number_[static_cast<std::size_t>(family)][number] : nullptr;
  }
  const Row& of(Op op) const {
    static const Row none;
    const Row* row = by_op_[static_cast<std::size_t>(op)];
    return row ? *row : none;
  }

 private:
  void index(const Row& row) {
    const Row*& number = by_number_[static_cast<std::size_t>(row.family)].at(row.number);
    const Row*& op = by_op_.at(static_cast<std::size_t>(row.op));
    if (number || op) throw std::logic_error("optable.inc: twice " + std::string(mnemonic(row.op)));
    number = op = &row;
  }

  std::vector<Row> rows_;
  std::array<std::vector<const Row*>, static_cast<std::size_t>(Family::count_)> by_number_;
  std::array<const Row*, static_cast<std::size_t>(Op::count_)> by_op_;
};

const Table& table() {
  static const Table instance;
  return instance;
}

}  // namespace

std::string_view mnemonic(Op op) {
  static constexpr std::string_view names[] = {
#define FLYMONO_OP(name, text) text,
#include "ops.def"
#undef FLYMONO_OP
  };
  return names[static_cast<std::size_t>(op)];
}

bool Row::has_vop3_form() const {
  if (family == Family::vopc) return true;
  if (family != Family::vop1 && family != Family::vop2) return false;
  for (const Slot& slot : src)
    if (slot.role == Role::literal || slot.bank == Bank::acc) return false;
  // v_readfirstlane_b32 and v_swap_b32 exist in the short form alone.
  return dst.bank != Bank::scalar && op != Op::v_swap_b32 && op != Op::v_nop;
}

const Row* find_row(Family family, unsigned number) { return table().find(family, number); }
const Row& row_of(Op op) { return table().of(op); }

}  // namespace flymono
