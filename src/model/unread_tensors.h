// What a model's files hold beside what the decoder reads, for a person: a tensor that is left out of the graph by
// mistake is said here and not passed over. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "model/decoder_spec.h"
#include "model/model_files.h"

namespace barg::model {

/// A sentence a kind of tensors that are not read: those of images and sound, of layers for the prediction of further
/// tokens, of an output matrix that the config says is the embedding, and all others, of which it names three. Buffers
/// that follow from the config (inv_freq, position_ids) are not said.
std::vector<std::string> unread_notes(const DecoderSpec& spec, const ModelFiles& files);

}  // namespace barg::model
