#include <cstdlib>
#include <new>

#include "base.hpp"
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace flymono {

#if defined(__linux__)
ZeroPages::ZeroPages(std::size_t bytes) : bytes_(bytes ? bytes : 1) {
  at_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at_ == MAP_FAILED) {
    at_ = nullptr;
    throw std::bad_alloc();
  }
  (void)madvise(at_, bytes_, MADV_HUGEPAGE);  // a hint
}
ZeroPages::~ZeroPages() {
  if (at_) munmap(at_, bytes_);
}
#else
ZeroPages::ZeroPages(std::size_t bytes) : bytes_((bytes + 64) / 64 * 64) {
  at_ = std::aligned_alloc(64, bytes_);
  if (!at_) throw std::bad_alloc();
  std::memset(at_, 0, bytes_);
}
ZeroPages::~ZeroPages() { std::free(at_); }
#endif

}  // namespace flymono
