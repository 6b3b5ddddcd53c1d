// What makes a model an embedding model, and how it then answers: the files of sentence-transformers beside a
// config.json (modules.json, the configuration of its Pooling module, sentence_bert_config.json), `pooling_type` of a
// GGUF file, or, where neither says anything, the architecture. Whatever would change a vector and is not known is an
// error that names it. Files are hostile: they are small or refused. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "barg/result.h"
#include "base/json.h"
#include "model/decoder_spec.h"
#include "model/field_reader.h"

namespace barg::model {

struct FilePooling {
  PoolingSpec spec;
  std::int32_t max_tokens = 0;  ///< that the files allow, whatever the positions; 0: they say nothing
};

/// `usual`: Family::pooling.
Result<FilePooling> pooling_from_hf(const std::string& directory, const Json& config, Pooling usual);
/// Problems go to `fields`.
FilePooling pooling_from_gguf(FieldReader& fields, Pooling usual);
/// Gives it to a spec, which then has no output matrix. Fails where that model cannot be pooled so.
Result<void> set_pooling(DecoderSpec& spec, const FilePooling& pooling);

}  // namespace barg::model
