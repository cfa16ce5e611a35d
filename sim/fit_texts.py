"""What a profile says of how it was fitted: its formula, units, methods, and where each coefficient comes from."""

FORMULA = (
    "t = host + encode + gemm(T) + prefill_attention + decode_attention; "
    "encode = e0 + E0 + E1*sum(s) + E2*sum(s^2), s: pre-merger tokens of each frame, 0 without images; "
    "gemm(T) = (G0^p + (G1*T)^p)^(1/p) + G2*T, T: prefill and decode tokens; "
    "prefill_attention = P0 + P1*sum(q) + P2*sum(q*(c + q/2)), q: chunk, c: tokens already cached, 0 without chunks; "
    "decode_attention = D0 + D1*b + D2*sum(context), b: decodes, 0 without decodes"
)
METHOD = (
    "encoder: each image size withheld in turn, batches of 1024 tokens and more; prefill and decode: each token count "
    "withheld in turn from both, then each context, whichever is harder; mixed: never fitted. bias: summed time with "
    "every row fitted. encode and gemm: errors of formula and table by which the form was chosen, of encoder rows, and "
    "the mean of prefill's and decode's"
)
METHOD_TOTALS = (
    "whole times of iterations; encoder: the token count of each batch withheld in turn; prefill, decode and mixed: "
    "each token count withheld in turn from all three; where there is but one, with it. bias: summed time with every "
    "row fitted, brought by the formula to 0 for encoder and language model, and for each stage of the latter where it "
    "can be. encode: errors of formula and table by which the form was chosen"
)
UNITS = {
    "E0": "ms",
    "E1": "ms/token",
    "E2": "ms/token^2",
    "G0": "ms",
    "G1": "ms/token",
    "G2": "ms/token",
    "p": "1",
    "P0": "ms",
    "P1": "ms/token",
    "P2": "ms/token^2",
    "D0": "ms",
    "D1": "ms/decode",
    "D2": "ms/token",
}
STAGES = {"E": "encoder rows", "G": "prefill and decode rows", "p": "prefill and decode rows"}
STAGES |= {"P": "prefill rows", "D": "decode rows"}


def source(name: str) -> str:
    return f"least squares, {STAGES[name[0]]}"


def source_totals(name: str) -> str:
    if name == "P1":
        return "0: whole times tell it not from gemm"
    return f"least squares on whole times, {'encoder' if name[0] == 'E' else 'prefill, decode and mixed'} rows"
