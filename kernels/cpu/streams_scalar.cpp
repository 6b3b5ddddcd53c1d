// Streams and gates that are cut, scalar: streams_kernel.h.
#include "cpu/streams_kernel.h"

namespace barg::ops::cpu {

void predict_streams_scalar(Stream& stream, const PredictStreamsParams& p) { run_predict_streams(stream, p); }
void correct_streams_scalar(Stream& stream, const CorrectStreamsParams& p) { run_correct_streams(stream, p); }
void match_magnitude_scalar(Stream& stream, const MatchMagnitudeParams& p) { run_match_magnitude(stream, p); }
void cut_gate_scalar(Stream& stream, const CutGateParams& p) { run_cut_gate(stream, p); }

}  // namespace barg::ops::cpu
