# NVTabular on cuDF, for etl.engine=nvtabular with etl.device=gpu. Written from release notes; it has not been built or run here.
#
#   docker build -f scripts/nvtabular-gpu.Dockerfile -t recsys-nvtabular-gpu .
#   docker run --rm --gpus all recsys-nvtabular-gpu python -m pytest -m gpu tests/gpu
#   docker run --rm --gpus all -v "$PWD/workspace:/recsys/workspace" recsys-nvtabular-gpu \
#       recsys run configs/demo.yaml etl.engine=nvtabular etl.device=gpu
#
# Why these releases: NVTabular 23.08, the last one, was made for cuDF 23.08 and pandas 1.5. recsys needs Python 3.11, for which
# cuDF is built from 24.04 on, and cuDF 24.04 needs pandas 2 (https://docs.nvidia.com/datascience/notices/rsn0036). So this is the
# oldest cuDF that can be beside recsys. On a CPU the engine's tests of NVTabular 23.08 passed beside pandas 2.2.1 and dask
# 2024.1.1 if dask leaves texts as they are (below); beside cuDF 24.08 its Categorify was seen to fail (NVTabular#1880), so no newer one.
FROM rapidsai/base:24.04-cuda12.2-py3.11

USER root
ENV DASK_DATAFRAME__CONVERT_STRING=False

# Without their dependencies, which would put pandas 1.5 and dask 2023.7 in the place of those of cuDF.
RUN pip install --no-cache-dir --no-deps nvtabular==23.8.0 merlin-core==23.8.0 merlin-dataloader==23.8.0 \
    && pip install --no-cache-dir betterproto npy-append-array "protobuf>=4" "pynvml<11.5" scipy tensorflow-metadata tqdm

WORKDIR /recsys
COPY . .
# The versions that cuDF 24.04 was built with stay.
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir "numpy<2" "pandas<2.2.2" "pyarrow==14.0.2" "polars<1.45" pytest hypothesis -e .

CMD ["recsys", "doctor"]
