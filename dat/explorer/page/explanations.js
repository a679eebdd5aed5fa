// What a map shows, in one sentence with its formula and unit. The formula of a model's relations comes from Python.

import { element } from "./tables.js";

const INDEX = /([_^][\p{L}\d]{1,2})(?![\p{L}\d])/u;

// A text with its indices, as r_ij or α^h_ij, set as such.
export const withIndices = (text) => text.split(INDEX).map((part, number) => (number % 2 ? element(part[0] === "_" ? "sub" : "sup", { text: part.slice(1) }) : part));

export function explained({ view, relation, head, heads: { kind, relationOfHead, weights } }, formula = "r_ij") {
  if (relation === null) {
    const scores = weights.activation !== "softmax" ? "" : ` = softmax_j(⟨q_i, k_j⟩ / √d${weights.offsets ? " + position" : ""})`;
    const object = kind === "relational" ? ["‖W^h_o s_j‖", "symbol"] : ["‖W^h_o v_j‖", "value"];
    return view === "attention"
      ? `α_ij${scores}: the share of its attention that receiver i gives to sender j${scores ? "; each row adds up to 1" : ""}. No unit.`
      : `α^h_ij ${object[0]}: how far the ${object[1]} of sender j, weighted by attention, moves the layer’s output at receiver i. A length in the residual stream.`;
  }
  if (view === "raw") return `${formula}: how receiver i compares with sender j, whether it attends to it or not. No unit.`;
  return view === "attended"
    ? `α^h_ij ${relationOfHead ? "r^h_ij" : "r_ij"}: the relation, weighted by the attention of head h = ${head}, which adds these up over all senders j. No unit.`
    : `‖Σ_h α^h_ij r_ij W^h_o W^h_r e_ℓ‖: how far relation ℓ = ${relation} to sender j moves the layer’s output at receiver i, through all heads h. A length in the residual stream.`;
}
