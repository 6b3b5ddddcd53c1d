// What was seen of the server's keys lately: a bounded memory of keys with the time of the last sighting.
// Two generations: when the young one is full, the old one is dropped. Not locked.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>

#include "store/block.h"

namespace barg::store {

class KeyMemory {
 public:
  explicit KeyMemory(std::size_t capacity) : half_(capacity / 2 + 1) {}

  void put(const Key& key, double when) {
    old_.erase(key);
    young_[key] = when;
    if (young_.size() >= half_) {
      old_ = std::move(young_);
      young_.clear();
    }
  }
  std::optional<double> seen(const Key& key) const {
    if (const auto it = young_.find(key); it != young_.end()) return it->second;
    if (const auto it = old_.find(key); it != old_.end()) return it->second;
    return {};
  }
  void erase(const Key& key) {
    young_.erase(key);
    old_.erase(key);
  }
  void clear() {
    young_.clear();
    old_.clear();
  }
  std::size_t size() const { return young_.size() + old_.size(); }

 private:
  using Map = std::unordered_map<Key, double, KeyHash>;
  std::size_t half_;
  Map young_, old_;
};

}  // namespace barg::store
