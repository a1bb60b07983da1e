"""The plan computed by a real `nvtabular.Workflow`: on cuDF where there is a GPU, on pandas elsewhere."""
