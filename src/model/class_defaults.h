// What transformers' configuration classes fill in where a config.json leaves a key out: a table of ours, one row a
// class, of the keys that Barg reads. Pure; any thread.
//
// A key that is there stays what it is, null too: a class that makes something of null (num_key_value_heads: as many
// as there are heads) has no row for it, and the family that reads it has the same rule.
#pragma once

#include <string_view>

#include "base/json.h"

namespace barg::model {

/// `config`, of a text model, with what it leaves out as its class has it: that of its model_type if there is one, else
/// `usual_class`.
Json with_class_defaults(Json config, std::string_view usual_class);

/// The row of the class with this model_type as an object; null where there is none.
Json class_defaults(std::string_view model_type);

}  // namespace barg::model
