// safetensors: validates a header against its file, and opens a model's one or many shards.
//
// The bytes are hostile: the header's length is checked before it is read, tensors must tile the data exactly
// (no holes, no overlap), sizes must equal shape times element size without overflow. Tensors may lie at any
// alignment. No recursion beyond the JSON parser's depth cap.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "barg/result.h"
#include "base/mapped_file.h"
#include "model/tensor.h"

namespace barg::model {

/// Every tensor of one file, views into `file`. Errors are kBadFile without the path.
Result<std::vector<Tensor>> parse_safetensors(std::span<const std::byte> file);

struct SafetensorsModel {
  std::vector<MappedFile> files;
  std::vector<Tensor> tensors;  ///< Tensor::file indexes `files`
};

/// `directory`/model.safetensors, or the shards that model.safetensors.index.json maps.
Result<SafetensorsModel> open_safetensors(const std::string& directory);

}  // namespace barg::model
