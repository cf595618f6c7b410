"""A draft layer with weights of the published form: vLLM's processing with the plugin's hooks around it, then
a reload through vLLM's own layerwise machinery."""

import sys

import torch
from checkpoint import differing, expected, fill, process
from harness import Echo, Supplies, Worker, answer, serve

ARCH, TP, *OPTIONS = sys.argv[1:]
LAYER, EXPERTS = 40, (1, 5, 127)


def main() -> None:
    serve(Supplies(Echo(0, int(TP))))
    with Worker(ARCH, int(TP)) as worker, torch.no_grad():
        from vllm.model_executor.model_loader.reload.layerwise import record_metadata_for_reloading

        from flymono.reference.layer_sizes import LayerSizes
        from flymono.reference.layer_weights import seeded_layer
        from flymono.runtime.plan.strategy import strategy_of
        from flymono.runtime.plan.support import model_of

        model, strategy = model_of(worker.specs, "dsv41"), strategy_of(worker.specs.arch[ARCH])
        sizes = LayerSizes.of(model, worker.tp, draft=True)
        layer = worker.layer(LAYER, "cpu")
        for parameter in layer.parameters():
            parameter.weight_loader = copied
        record_metadata_for_reloading(layer)
        first, second = seeded_layer(model, LAYER), seeded_layer(model, LAYER, seed=1)
        fill(layer, first, worker.tp, 0, EXPERTS)
        if "padding" in OPTIONS:  # a byte where padding must be
            layer.ffn.experts.routed_experts.w13_weight.data[5, sizes.inter] = 1
        try:
            modules = process(layer)
            weights = layer.mono.copies.weights()
        except Exception as error:
            answer(error=str(error), broken=[str(r.code) for r in layer.mono.copies.broken.values()])
            return
        wanted = expected(first, worker.tp, 0, EXPERTS, sizes, strategy)
        loaded = differing(weights, wanted)
        wanted["ffn"]["w2"] = wanted["ffn"]["w2"] ^ 1  # the comparison can fail
        planted = differing(weights, wanted)
        nbytes, before = layer.mono.copies.nbytes, addresses(weights)
        reload(worker, layer, second)
        after = layer.mono.copies.weights()
        again = differing(after, expected(second, worker.tp, 0, EXPERTS, sizes, strategy))
        moved = [name for name, address in addresses(after).items() if before[name] != address]
        answer(
            modules=modules, loaded=loaded, planted=planted, reloaded=again, moved=moved, copies=nbytes,
            own=layer.mono.copies.own, launches_same=differing(weights, expected(
                second, worker.tp, 0, EXPERTS, sizes, strategy)),
        )  # fmt: skip


def addresses(weights: object) -> dict[str, int]:
    """Where every tensor of the launches is."""
    return {
        f"{part}.{name}": tensor.data_ptr()
        for part in ("k1", "back", "ffn")
        for name, tensor in getattr(weights, part).items()
    }


def reload(worker: Worker, layer: object, whole: object) -> None:
    """vLLM's layerwise reload: new tensors, its processing, then copies into the storage of the old ones.

    The loader of each parameter is one that copies what it is given; what is given has the published form.
    """
    from vllm.model_executor.model_loader.reload.layerwise import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    source = worker_copy(layer)
    initialize_layerwise_reload(layer)
    fill(source, whole, worker.tp, worker.rank, EXPERTS)
    values = dict(source.named_parameters())
    for name, parameter in list(layer.named_parameters()):
        parameter.weight_loader(parameter, values[name].data)
    finalize_layerwise_reload(layer, worker.config.model_config)


def copied(param: torch.Tensor, loaded_weight: torch.Tensor) -> None:
    """A loader; the machinery knows its first argument by this name."""
    param.data.copy_(loaded_weight)


def worker_copy(layer: object) -> torch.nn.Module:
    """Modules of the same names with parameters of the checkpoint's form."""
    from lazy import lazy_zeros
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    root = torch.nn.Module()
    for path, module in layer.named_modules():
        own = root
        for part in filter(None, path.split(".")):
            if not hasattr(own, part):
                own.add_module(part, torch.nn.Module())
            own = getattr(own, part)
        parameters, buffers = get_layerwise_info(module).restore_metadata
        for name, meta in parameters.items():
            value = lazy_zeros(tuple(meta.shape), torch.uint8) if meta.dtype == torch.uint8 else None
            data = torch.zeros(meta.shape, dtype=meta.dtype) if value is None else value
            own.register_parameter(name, torch.nn.Parameter(data, requires_grad=False))
        for name, meta in buffers.items():
            own.register_buffer(name, torch.zeros((4, *meta.shape[1:]), dtype=meta.dtype))
        for name, held in module._parameters.items():
            if held is not None and name not in parameters:  # the machinery leaves it to its loader
                own.register_parameter(name, torch.nn.Parameter(torch.zeros_like(held), requires_grad=False))
    return root


main()
