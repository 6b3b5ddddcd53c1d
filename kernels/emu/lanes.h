// Which element of a matrix lies in which register of which lane: the tables of the PTX ISA for ldmatrix and
// mma.m16n8k16 with 16-bit inputs. Tests hold them against the layouts that CuTe publishes for the same instructions.
#pragma once

namespace barg::emu {

struct MatrixElement {
  int row, column;
};

/// Element e (0, 1) of a lane's register for one 8x8 matrix ("Matrix fragment for ldmatrix with .b16").
constexpr MatrixElement ldmatrix_element(int lane, int e) { return {lane / 4, 2 * (lane % 4) + e}; }

/// Element i of a lane's fragment of A, 16 x 16: groupID = lane >> 2, threadID_in_group = lane % 4;
/// row = groupID for i in {0, 1, 4, 5}, else groupID + 8; column = threadID_in_group * 2 + (i & 1), + 8 for i >= 4.
constexpr MatrixElement mma_a_element(int lane, int i) {
  return {lane / 4 + (i % 4 >= 2 ? 8 : 0), 2 * (lane % 4) + i % 2 + (i >= 4 ? 8 : 0)};
}
/// Of B, 16 x 8: row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; column = groupID.
constexpr MatrixElement mma_b_element(int lane, int i) { return {2 * (lane % 4) + i % 2 + (i >= 2 ? 8 : 0), lane / 4}; }
/// Of C and D, 16 x 8: row = groupID, + 8 for i >= 2; column = threadID_in_group * 2 + (i & 1).
constexpr MatrixElement mma_d_element(int lane, int i) { return {lane / 4 + (i >= 2 ? 8 : 0), 2 * (lane % 4) + i % 2}; }

}  // namespace barg::emu
