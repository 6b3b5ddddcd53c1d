#include "cuda/gemm_lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <type_traits>

#include "cuda/gemm_lt_abi.h"

namespace barg::cuda {

using lt::Algorithm;
using lt::Found;
using lt::Status;

struct GemmLt::Functions {
  void* library = nullptr;
  Status (*create)(void**) = nullptr;
  Status (*destroy)(void*) = nullptr;
  std::size_t (*version)() = nullptr;
  const char* (*status_text)(Status) = nullptr;
  Status (*desc_create)(void**, int, int) = nullptr;
  Status (*desc_destroy)(void*) = nullptr;
  Status (*desc_set)(void*, int, const void*, std::size_t) = nullptr;
  Status (*layout_create)(void**, int, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  Status (*layout_destroy)(void*) = nullptr;
  Status (*pref_create)(void**) = nullptr;
  Status (*pref_destroy)(void*) = nullptr;
  Status (*pref_set)(void*, int, const void*, std::size_t) = nullptr;
  Status (*find)(void*, void*, void*, void*, void*, void*, void*, int, Found*, int*) = nullptr;
  Status (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const Algorithm*, void*, std::size_t, void*) = nullptr;

  ~Functions() {
    if (library != nullptr) ::dlclose(library);
  }

  /// The name of a function that the library lacks; nullptr: it has all.
  const char* load() {
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function == nullptr ? name : nullptr;
    };
    for (const char* missing :
         {get(create, "cublasLtCreate"), get(destroy, "cublasLtDestroy"), get(version, "cublasLtGetVersion"),
          get(status_text, "cublasLtGetStatusString"), get(desc_create, "cublasLtMatmulDescCreate"),
          get(desc_destroy, "cublasLtMatmulDescDestroy"), get(desc_set, "cublasLtMatmulDescSetAttribute"),
          get(layout_create, "cublasLtMatrixLayoutCreate"), get(layout_destroy, "cublasLtMatrixLayoutDestroy"),
          get(pref_create, "cublasLtMatmulPreferenceCreate"), get(pref_destroy, "cublasLtMatmulPreferenceDestroy"),
          get(pref_set, "cublasLtMatmulPreferenceSetAttribute"), get(find, "cublasLtMatmulAlgoGetHeuristic"),
          get(matmul, "cublasLtMatmul")}) {
      if (missing != nullptr) return missing;
    }
    return nullptr;
  }
};

/// A product's description. To the library, whose matrices are by columns, x is [K, R], W^T is [K, N] transposed, and the
/// result [N, R].
struct GemmLt::Plan {
  explicit Plan(const Functions& f) : functions(f) {}
  ~Plan() {
    if (desc != nullptr) functions.desc_destroy(desc);
    for (void* layout : {weight, x, out}) {
      if (layout != nullptr) functions.layout_destroy(layout);
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Functions& functions;
  void *desc = nullptr, *weight = nullptr, *x = nullptr, *out = nullptr;
  Algorithm algorithm{};
};

GemmLt::GemmLt() : lt_(std::make_unique<Functions>()) {}

GemmLt::~GemmLt() {
  plans_.clear();
  if (handle_ != nullptr) lt_->destroy(handle_);
}

std::unique_ptr<GemmLt> GemmLt::open(const std::vector<std::string>& names, std::string* error) {
  std::unique_ptr<GemmLt> opened(new GemmLt);
  std::string tried;
  for (const std::string& name : names) {
    opened->lt_->library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened->lt_->library != nullptr) break;
    const char* const why = ::dlerror();
    tried += (tried.empty() ? "" : "; ") + (why != nullptr ? std::string(why) : name);
  }
  if (opened->lt_->library == nullptr) {
    *error = "invariant: false needs cuBLASLt, which could not be opened (" + tried + ")";
    return nullptr;
  }
  if (const char* missing = opened->lt_->load()) {
    *error = std::string("cuBLASLt has no ") + missing + ": it is too old";
    return nullptr;
  }
  *error = opened->text(opened->lt_->create(&opened->handle_), "cublasLtCreate");
  if (!error->empty()) {
    opened->handle_ = nullptr;
    return nullptr;
  }
  return opened;
}

std::size_t GemmLt::version() const { return lt_->version(); }

std::string GemmLt::text(int status, const char* what) const {
  if (status == 0) return {};
  return std::string("cuBLASLt: ") + what + ": " + lt_->status_text(status);
}

namespace {

std::uint32_t alignment_of(const void* p) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(p) | kMost;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

}  // namespace

std::string GemmLt::plan(const GemmLtParams& p, const Alignment& alignment, Plan& plan) {
  const int type = p.type == DType::kF16 ? lt::kR16F : lt::kR16BF;
  const auto k = static_cast<std::uint64_t>(p.k), n = static_cast<std::uint64_t>(p.n),
             rows = static_cast<std::uint64_t>(p.rows);
  const std::uint64_t most = p.workspace_bytes;
  void* preference = nullptr;
  Found found{};
  int count = 0;
  int status = lt_->desc_create(&plan.desc, lt::kCompute32F, lt::kR32F);
  const char* what = "describing a product";
  if (status == 0) status = lt_->desc_set(plan.desc, lt::kDescTransA, &lt::kTransposed, sizeof(lt::kTransposed));
  if (status == 0) status = lt_->layout_create(&plan.weight, type, k, n, p.k);
  if (status == 0) status = lt_->layout_create(&plan.x, type, k, rows, p.x_stride);
  if (status == 0) status = lt_->layout_create(&plan.out, lt::kR32F, n, rows, p.out_stride);
  if (status == 0) status = lt_->pref_create(&preference);
  if (status == 0) status = lt_->pref_set(preference, lt::kPrefWorkspaceBytes, &most, sizeof(most));
  for (int i = 0; i < 4 && status == 0; ++i) {  // out is added to where it is: C and D
    const std::uint32_t bytes = alignment[static_cast<std::size_t>(std::min(i, 2))];
    status = lt_->pref_set(preference, lt::kPrefAlignment[i], &bytes, sizeof(bytes));
  }
  if (status == 0) {
    what = "looking for an algorithm";
    status = lt_->find(handle_, plan.desc, plan.weight, plan.x, plan.out, plan.out, preference, 1, &found, &count);
  }
  if (preference != nullptr) lt_->pref_destroy(preference);
  if (status != 0) return text(status, what);
  if (count < 1 || found.state != 0) {
    return "cuBLASLt has no algorithm for " + std::to_string(p.rows) + " x " + std::to_string(p.n) + " x " +
           std::to_string(p.k);
  }
  plan.algorithm = found.algorithm;
  return {};
}

std::string GemmLt::multiply(const GemmLtParams& p) {
  if (p.type != DType::kF16 && p.type != DType::kBF16) return std::string("cuBLASLt is not given ") + dtype_name(p.type);
  constexpr std::size_t kMostPlans = 4096;  // prompts have any number of rows
  if (plans_.size() >= kMostPlans) plans_.clear();
  const Alignment alignment{alignment_of(p.weight), alignment_of(p.x), alignment_of(p.out)};
  std::unique_ptr<Plan>& known =
      plans_[{p.type, p.rows, p.n, p.k, p.x_stride, p.out_stride, p.workspace_bytes, alignment}];
  if (known == nullptr) {
    auto made = std::make_unique<Plan>(*lt_);
    if (std::string error = plan(p, alignment, *made); !error.empty()) return error;
    known = std::move(made);
  }
  const float one = 1, old = p.accumulate ? 1 : 0;
  return text(lt_->matmul(handle_, known->desc, &one, p.weight, known->weight, p.x, known->x, &old, p.out, known->out,
                          p.out, known->out, &known->algorithm, p.workspace, p.workspace_bytes, p.stream),
              "cublasLtMatmul");
}

}  // namespace barg::cuda
