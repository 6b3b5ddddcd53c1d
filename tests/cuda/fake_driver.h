// What a test and the library that stands for the CUDA driver (fake_driver.cpp) share. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

struct FakeDriver {
  int version = 12040, devices = 1, major = 9, minor = 0;
  std::map<std::string, int> failing;  ///< what a function returns instead of doing anything
  std::vector<std::string> calls;      ///< but those that happen too often to be of interest
  int capture_mode = 0;
  int missing_from = 0;  ///< so many modules that are asked next have no such function
  int alive = 0;                       ///< things that were made and not destroyed

  int entered(const char* name) {
    calls.emplace_back(name);
    const auto it = failing.find(name);
    return it == failing.end() ? 0 : it->second;
  }
};

/// "barg_fake_driver" in the library.
using FakeDriverAccess = FakeDriver* (*)();
