// Streams and gates that are cut, AVX-512: streams_kernel.h.
#include "cpu/streams_kernel.h"

namespace barg::ops::cpu {

void predict_streams_avx512(Stream& stream, const PredictStreamsParams& p) { run_predict_streams(stream, p); }
void correct_streams_avx512(Stream& stream, const CorrectStreamsParams& p) { run_correct_streams(stream, p); }
void match_magnitude_avx512(Stream& stream, const MatchMagnitudeParams& p) { run_match_magnitude(stream, p); }
void cut_gate_avx512(Stream& stream, const CutGateParams& p) { run_cut_gate(stream, p); }

}  // namespace barg::ops::cpu
