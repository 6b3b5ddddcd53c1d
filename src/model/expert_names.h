// The names of tensors of experts, routers and latent attention in Hugging Face checkpoints. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace barg::model {

/// What stands behind "blk.N." for a name behind "model.layers.N."; nothing where it is no tensor of theirs.
/// Matrices of single experts become "ffn_gate.E.weight", stacks "ffn_gate_exps.weight".
std::optional<std::string> expert_tensor_name(std::string_view rest);

}  // namespace barg::model
