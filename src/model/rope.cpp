#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace barg::model {
namespace {

/// llama3: long waves are stretched by `factor`, short ones kept, those between blended.
double llama3_frequency(const RopeSpec& s, double f) {
  const double wave = 2 * std::numbers::pi / f;
  if (wave < s.original_max_positions / s.high_freq_factor) return f;
  if (wave > s.original_max_positions / s.low_freq_factor) return f / s.factor;
  const double t =
      (s.original_max_positions / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - t) * f / s.factor + t * f;
}

/// yarn: short waves are kept, long ones stretched by `factor`, those between blended along a ramp over the
/// frequencies' indices. The ramp's ends are where waves turn beta_fast and beta_slow times in the original
/// context.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeSpec& s) : factor_(s.factor) {
    begin_ = index_of(s, s.beta_fast);
    end_ = index_of(s, s.beta_slow);
    if (s.truncate) {
      begin_ = std::floor(begin_);
      end_ = std::ceil(end_);
    }
    begin_ = std::max(begin_, 0.0);
    end_ = std::min(end_, s.rotary_dim - 1.0);
    if (begin_ == end_) end_ += 0.001;
  }
  double frequency(double i, double f) const {
    const double ramp = std::clamp((i - begin_) / (end_ - begin_), 0.0, 1.0);
    return f / factor_ * ramp + f * (1 - ramp);
  }

 private:
  static double index_of(const RopeSpec& s, double turns) {
    return s.rotary_dim * std::log(s.original_max_positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(s.theta));
  }
  double factor_, begin_ = 0, end_ = 0;
};

/// dynamic: theta for a context of `tokens`.
double stretched_theta(const RopeSpec& s, double tokens) {
  if (tokens <= s.original_max_positions) return s.theta;
  const double stretch = s.factor * tokens / s.original_max_positions - (s.factor - 1);
  return s.theta * std::pow(stretch, s.rotary_dim / (s.rotary_dim - 2.0));
}

}  // namespace

void fix_context(DecoderSpec& spec, std::int32_t tokens) {
  for (RopeSpec& r : spec.ropes) {
    if (r.kind == RopeSpec::Kind::kLongRope)
      r.divisors = tokens > r.original_max_positions ? r.long_divisors : r.short_divisors;
    if (r.kind == RopeSpec::Kind::kDynamic) {
      r.theta = stretched_theta(r, tokens);
      r.original_max_positions = std::max<double>(r.original_max_positions, tokens);
    }
  }
}

double yarn_magnitude(double factor, double c) { return factor <= 1 ? 1 : 0.1 * c * std::log(factor) + 1; }

std::vector<float> rope_frequencies(const RopeSpec& spec) {
  using Kind = RopeSpec::Kind;
  std::vector<float> out(static_cast<std::size_t>(spec.rotary_dim / 2));
  const auto turning =
      static_cast<std::size_t>(spec.rotated_share * spec.rotary_dim / 2);  // the others have frequency 0
  for (std::size_t i = 0; i < out.size(); ++i) {
    double f = std::pow(spec.theta, -2.0 * static_cast<double>(i) / spec.rotary_dim);
    if (spec.kind == Kind::kLinear) f /= spec.factor;
    if (spec.kind == Kind::kLlama3) f = llama3_frequency(spec, f);
    if (spec.kind == Kind::kYarn) f = YarnRamp(spec).frequency(static_cast<double>(i), f);
    if (spec.kind == Kind::kProportional) f = i < turning ? f / spec.factor : 0;
    if (!spec.divisors.empty()) f /= static_cast<double>(spec.divisors[i]);
    out[i] = static_cast<float>(f);
  }
  return out;
}

}  // namespace barg::model
