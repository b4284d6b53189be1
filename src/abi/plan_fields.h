// Every field of a plan, in one place: what goes over all of them (text, comparison) is a visitor
// here, and a new field is one line.
//
//   visitor.field("name", member)     a value, by its name in text
//   visitor.lines("argument", list)   of the plan: one record a line, in order
#pragma once

#include "abi/plan.h"

namespace inkle::abi {

template <class V>
void visit_fields(V& v, Device& d) {
  v.field("kind", d.kind);
  v.field("index", d.index);
}

template <class V>
void visit_fields(V& v, PlanArgument& a) {
  v.field("name", a.name);
  v.field("integer", a.is_integer);
  v.field("dtype", a.dtype);
  v.field("sizes", a.sizes);
  v.field("strides", a.strides);
  v.field("alignment", a.alignment);
  v.field("parameter", a.is_parameter);
  v.field("written", a.is_written);
  v.field("device", a.device);
}

template <class V>
void visit_fields(V& v, SizeInstruction& i) {
  v.field("result", i.result);
  v.field("op", i.op);
  v.field("a", i.a);
  v.field("b", i.b);
  v.field("immediate", i.immediate);
}

template <class V>
void visit_fields(V& v, Guard& g) {
  v.field("a", g.a);
  v.field("relation", g.relation);
  v.field("b", g.b);
  v.field("message", g.message);
}

template <class V>
void visit_fields(V& v, BufferDecl& b) {
  v.field("name", b.name);
  v.field("kind", b.kind);
  v.field("index", b.index);
  v.field("dtype", b.dtype);
  v.field("sizes", b.sizes);
  v.field("strides", b.strides);
  v.field("bytes", b.bytes);
  v.field("first_use", b.first_use);
  v.field("last_use", b.last_use);
  v.field("device", b.device);
}

template <class V>
void visit_fields(V& v, ConstantDecl& c) {
  v.field("dtype", c.dtype);
  v.field("sizes", c.sizes);
}

template <class V>
void visit_fields(V& v, DeviceKernel& k) {
  v.field("image", k.image);
  v.field("entry", k.entry);
  v.field("threads", k.block_threads);
  v.field("shared_bytes", k.shared_bytes);
  v.field("cluster", k.cluster_blocks);
  v.field("workspace", k.has_workspace);
  v.field("can_fail", k.can_fail);
  v.field("waits", k.waits);
  v.field("co_resident", k.co_resident);
}

template <class V>
void visit_fields(V& v, KernelDecl& k) {
  v.field("name", k.name);
  v.field("key", k.code_key);
  v.field("device", k.device);
  v.field("text", k.text);
}

template <class V>
void visit_fields(V& v, Operand& o) {
  v.field("buffer", o.buffer);
  v.field("dtype", o.dtype);
  v.field("offset", o.offset);
  v.field("sizes", o.sizes);
  v.field("strides", o.strides);
}

template <class V>
void visit_fields(V& v, PostOp& p) {
  v.field("kind", p.kind);
  v.field("alpha", p.alpha);
  v.field("beta", p.beta);
  v.field("operand", p.operand);
}

template <class V>
void visit_fields(V& v, TensorMap& m) {
  v.field("buffer", m.buffer);
  v.field("dtype", m.dtype);
  v.field("sizes", m.sizes);
  v.field("strides", m.strides);
  v.field("box", m.box);
  v.field("swizzle", m.swizzle);
}

template <class V>
void visit_fields(V& v, Launch& l) {
  v.field("kernel", l.kernel);
  v.field("buffers", l.buffers);
  v.field("sizes", l.sizes);
  v.field("extent", l.extent);
  v.field("grain", l.grain);
  v.field("scratch_bytes", l.scratch_bytes);
  v.field("extents", l.extents);
  v.field("maps", l.maps);
}

template <class V>
void visit_fields(V& v, MatmulCall& m) {
  v.field("a", m.a);
  v.field("b", m.b);
  v.field("c", m.c);
  v.field("has_bias", m.has_bias);
  v.field("bias", m.bias);
  v.field("b_is_weight", m.b_is_weight);
  v.field("post_ops", m.post_ops);
}

template <class V>
void visit_fields(V& v, ConvolutionCall& c) {
  v.field("x", c.x);
  v.field("w", c.w);
  v.field("y", c.y);
  v.field("has_bias", c.has_bias);
  v.field("bias", c.bias);
  v.field("stride", c.stride);
  v.field("padding", c.padding);
  v.field("dilation", c.dilation);
  v.field("output_padding", c.output_padding);
  v.field("groups", c.groups);
  v.field("transposed", c.transposed);
  v.field("weight_gradient", c.weight_gradient);
  v.field("w_is_weight", c.w_is_weight);
  v.field("post_ops", c.post_ops);
}

template <class V>
void visit_fields(V& v, AttentionCall& a) {
  v.field("q", a.q);
  v.field("k", a.k);
  v.field("v", a.v);
  v.field("out", a.out);
  v.field("has_mask", a.has_mask);
  v.field("mask", a.mask);
  v.field("scale", a.scale);
  v.field("causal", a.is_causal);
}

template <class V>
void visit_fields(V& v, EagerArgument& a) {
  v.field("kind", a.kind);
  v.field("index", a.index);
  v.field("part", a.part);
}

template <class V>
void visit_fields(V& v, EagerCall& e) {
  v.field("target", e.target);
  v.field("name", e.name);
  v.field("arguments", e.arguments);
  v.field("results", e.results);
}

template <class V>
void visit_fields(V& v, CopyStep& c) {
  v.field("from", c.from);
  v.field("to", c.to);
}

template <class V>
void visit_fields(V& v, Branch& b) {
  v.field("condition", b.condition);
  v.field("then_region", b.then_region);
  v.field("else_region", b.else_region);
}

template <class V>
void visit_fields(V& v, Loop& l) {
  v.field("trips", l.trips);
  v.field("body", l.body);
}

template <class V>
void visit_fields(V& v, RegionCall& c) {
  v.field("region", c.region);
  v.field("formals", c.formals);
  v.field("actuals", c.actuals);
}

template <class V>
void visit_fields(V& v, PlanStep& s) {
  v.field("action", s.action);
  v.field("prepare", s.prepare);
  v.field("bytes", s.bytes);
  v.field("flops", s.flops);
  v.field("source", s.source);
  v.field("checked", s.checked);
}

template <class V>
void visit_fields(V& v, Region& r) {
  v.field("steps", r.steps);
}

template <class V>
void visit_fields(V& v, PlanOutput& o) {
  v.field("kind", o.kind);
  v.field("index", o.index);
  v.field("sizes", o.sizes);
  v.field("strides", o.strides);
  v.field("offset", o.offset);
}

template <class V>
void visit_fields(V& v, Plan& p) {
  v.field("name", p.name);
  v.field("slots", p.slot_count);
  v.lines("argument", p.arguments);
  v.lines("size", p.size_program);
  v.lines("guard", p.guards);
  v.lines("constant", p.constants);
  v.lines("kernel", p.kernels);
  v.lines("buffer", p.buffers);
  v.lines("step", p.steps);
  v.lines("region", p.regions);
  v.lines("output", p.outputs);
}

}  // namespace inkle::abi
